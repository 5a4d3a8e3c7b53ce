#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks of a training, sharded or of layers that are split, that are lost in the middle of a forward, a backward, a step, a save, or at any time.

usage: sharding_faults_test.py RANK_PROGRAM [RANDOM_LOSSES]

All others name the lost rank within two seconds. The latest checkpoint then loads on fewer ranks, and the losses from
there on are those of a training that nothing interrupted. RANDOM_LOSSES is the number of ranks that are lost at any
time, 4 by default. Whatever happens, no process and no shared memory is left.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time

from looping_ranks import LIMIT_S, LoopingRanks
from private_shared_memory import nothing_left_in_shared_memory
from run_ranks import fail, start_directly

FULL, SHARDED = 1, 3  # ACCEL_STATE_DICT_TYPE_*
GONE_WITHIN_MS = 2000
RANDOM_LOSSES = 4
AT_STEP = {"forward": 6, "backward": 6, "step": 6, "save": 8}  # checkpoints are saved after 4 steps, 8, ...
CASES = [
    # ranks, who is lost, where, how, type of the checkpoints, and ranks that have parts of the same layers before and after
    (2, 1, "forward", signal.SIGKILL, FULL, 1, 1),
    (3, 0, "forward", signal.SIGSEGV, SHARDED, 1, 1),
    (4, 2, "backward", signal.SIGKILL, SHARDED, 1, 1),
    (2, 0, "backward", signal.SIGABRT, FULL, 1, 1),
    (3, 2, "step", signal.SIGKILL, FULL, 1, 1),
    (4, 0, "step", signal.SIGKILL, SHARDED, 1, 1),
    (2, 1, "save", signal.SIGKILL, FULL, 1, 1),
    (3, 0, "save", signal.SIGKILL, FULL, 1, 1),
    (3, 1, "save", signal.SIGSEGV, SHARDED, 1, 1),
    (4, 0, "save", signal.SIGKILL, SHARDED, 1, 1),
    (2, 1, "forward", signal.SIGKILL, FULL, 2, 1),
    (3, 0, "forward", signal.SIGKILL, SHARDED, 3, 2),
    (4, 2, "backward", signal.SIGKILL, SHARDED, 2, 3),
    (4, 1, "step", signal.SIGKILL, FULL, 4, 1),
    (3, 2, "save", signal.SIGKILL, SHARDED, 3, 1),
]


def split_layers(tensor_ranks):
    """For ranks that are started from now on."""
    os.environ["PARALLELISM_CONFIG_TP_SIZE"] = str(tensor_ranks)


def losses(program, count, *checkpoint):
    """The losses of steps, from the beginning or from a checkpoint."""
    ranks = start_directly(program, count, "sharding_losses", *checkpoint, stdout=subprocess.PIPE, text=True)
    try:
        output = [process.communicate(timeout=LIMIT_S)[0] for process in ranks][0]
        if any(process.returncode != 0 for process in ranks):
            fail(f"training on {count} ranks from {checkpoint} ended with {[process.returncode for process in ranks]}")
        return {int(step): float(loss) for step, loss in (line.split() for line in output.splitlines())}
    finally:
        for process in ranks:
            process.kill()
            process.wait()


def lose(program, count, victim, place, how, state_dict_type, folder, chance, tensor_ranks):
    """Returns the milliseconds of the slowest report."""
    own = {rank: [f"{folder} {state_dict_type} {place if rank == victim else 'nowhere'} {int(how)} {AT_STEP.get(place, 0)}"]
           for rank in range(count)}
    with LoopingRanks(program, count, "sharding_until_lost", own_arguments=own) as ranks:
        if place == "anywhere":
            time.sleep(chance.uniform(0, 0.1))
            ranks.processes[victim].send_signal(how)
        ranks.processes[victim].wait(LIMIT_S)
        if ranks.processes[victim].returncode != -how:
            fail(f"rank {victim} ended with {ranks.processes[victim].returncode}; expected {-how} in {place}")
        others = [rank for rank in range(count) if rank != victim]
        return ranks.expect_failure(others, {"ACCEL_ERROR_PEER_LOST"}, lambda rank: [victim], GONE_WITHIN_MS)


def continue_on_fewer(program, count, folder, expected):
    saved = sorted(int(name[len("step"):]) for name in os.listdir(folder) if name.startswith("step"))
    if not saved:
        fail(f"no checkpoint is left, but {os.listdir(folder)}")
    usable = [step for step in saved if step < max(expected)]
    found = losses(program, count, os.path.join(folder, f"step{usable[-1]}"))
    if sorted(found) != [step for step in sorted(expected) if step >= usable[-1]]:
        fail(f"losses of the steps {sorted(found)} after a checkpoint of step {usable[-1]}")
    for step, loss in found.items():
        if abs(loss - expected[step]) > 1e-5 * abs(expected[step]):
            fail(f"the loss of step {step} is {loss} after a checkpoint on {count} ranks, and {expected[step]} without")


def main():
    if len(sys.argv) not in (2, 3):
        fail(__doc__)
    program, random_losses = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else RANDOM_LOSSES
    chance = random.Random(2)
    expected = losses(program, 2)
    if len(expected) != 12 or not expected[11] < 0.9 * expected[0]:
        fail(f"the model does not learn: {expected}")
    cases = CASES + [(2 + i % 3, chance.randrange(2 + i % 3), "anywhere", signal.SIGKILL, (FULL, SHARDED)[i % 2],
                      (2 + i % 3, 1)[i % 2], 1) for i in range(random_losses)]
    slowest = 0
    with nothing_left_in_shared_memory():
        for count, victim, place, how, state_dict_type, before, after in cases:
            with tempfile.TemporaryDirectory(prefix="accel-ranks-") as folder:
                split_layers(before)
                slowest = max(slowest, lose(program, count, victim, place, how, state_dict_type, folder, chance, before))
                split_layers(after)
                continue_on_fewer(program, count - 1, folder, expected)
    print(f"{len(cases)} ranks were lost; the slowest report came after {slowest} ms")


if __name__ == "__main__":
    main()
