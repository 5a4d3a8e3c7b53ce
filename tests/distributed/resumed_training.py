# SPDX-License-Identifier: Apache-2.0
"""What the example resume.c says, and what it should have said."""

import re
import subprocess

from run_ranks import LIMIT_S, fail

STEP = re.compile(r"step (\d+) loss: (\S+)")
STEPS = 200


class ResumedTraining:
    """Losses of a run of two ranks that nobody interrupts."""

    def __init__(self, accel, resume, folder, environment, steps=STEPS):
        command = [accel, "launch", "--num-processes", "2", "--", resume, f"{folder}/undisturbed", str(steps)]
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S,
                              check=False)
        self.steps = steps
        self.losses = dict(STEP.findall(done.stdout))
        if done.returncode != 0 or len(self.losses) != steps:
            fail(f"the undisturbed run ended with {done.returncode}: {done.stdout}")

    def expect(self, output, what, same_size=True):
        """All steps are there, and the losses are the same, also those of steps that were made twice. With another number
        of ranks for some time only the steps are compared, and that the training learns."""
        made = STEP.findall(output)
        if {int(step) for step, _ in made} != set(range(1, self.steps + 1)):
            fail(f"{what}: steps are missing in {output}")
        different = [(step, loss, self.losses[step]) for step, loss in made if self.losses[step] != loss]
        if same_size and different:
            fail(f"{what}: losses differ from the undisturbed run: {different[:5]}")
        if float(made[-1][1]) > 0.8 * float(made[0][1]):
            fail(f"{what}: the loss went from {made[0][1]} to {made[-1][1]}; expected that it learns")
