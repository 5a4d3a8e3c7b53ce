#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training on two hosts that loses a rank, a host, and the link between them, and goes on: host_loss_test.py ACCEL RESUME

Where the number of ranks stays, the losses are those of a run that nobody interrupts. Skipped (77) without what
two_hosts.py needs.
"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

from resumed_training import STEP, ResumedTraining
from run_ranks import LIMIT_S, fail
from two_hosts import Network, NoLink

SKIPPED = 77
STEPS = 120
STEP_MS = 20
FIRST_STEP_WITHIN_S = 3
CUT_WITHIN_S = 15  # 5 s of silence, 1.5 s for the ranks, and the start


class Launcher:
    """That of one host, in the background; when each of its lines came is known."""

    def __init__(self, test, network, host, options):
        command = [*network.enter(host), test.accel, "launch", "--num-processes", "2", *options, "--", test.resume,
                   str(test.run), str(STEPS), str(STEP_MS)]
        self.process = subprocess.Popen(command, env=test.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, start_new_session=True)
        self.lines = []  # (time, line)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line))

    def text(self):
        return "".join(line for _, line in self.lines)

    def ranks(self):
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(child) for child in children if pathlib.Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[0].endswith(b"resume")]

    def wait_for(self, condition, what, seconds=LIMIT_S):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end or self.process.poll() is not None:
                fail(f"{what}: not within {seconds} s: {self.text()}")
            time.sleep(0.01)

    def wait_for_step(self, step):
        self.wait_for(lambda: any(line.startswith(f"step {step} ") for _, line in list(self.lines)), f"step {step}")

    def first_step_after(self, moment):
        """When the first step of the next attempt was made."""
        def found():
            lines = list(self.lines)
            starts = [i for i, (at, line) in enumerate(lines) if at > moment and line.startswith("processes:")]
            return [at for at, line in lines[starts[0]:] if line.startswith("step ")] if starts else []
        self.wait_for(found, "a step of the next attempt")
        return found()[0] - moment

    def end(self, expected):
        try:
            self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            fail(f"a launcher did not end: {self.text()}")
        self.reader.join(LIMIT_S)
        if self.process.returncode != expected:
            fail(f"a launcher ended with {self.process.returncode}; expected {expected}: {self.text()}")

    def close(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.reader.join(LIMIT_S)
        self.process.stdout.close()


class HostLoss:
    def __init__(self, accel, resume, folder):
        self.accel, self.resume, self.folder = os.path.abspath(accel), os.path.abspath(resume), pathlib.Path(folder)
        names = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "SLURM_", "OMPI_", "PMI_", "PET_", "ACCELERATE_", "ACCEL_HOST", "ACCEL_JOB")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(names)}
        self.environment = dict(kept, OMP_NUM_THREADS="1")
        self.undisturbed = ResumedTraining(self.accel, self.resume, self.folder, self.environment, STEPS)
        self.run = None
        self.launchers = []

    def start(self, network, host, *options):
        self.launchers.append(Launcher(self, network, host, options))
        return self.launchers[-1]

    def numbered(self, network, host):
        return self.start(network, host, "--num-machines", "2", "--machine-rank", str(host), "--main-process-ip",
                          network.hosts[0].address, "--max-restarts", "2")

    def elastic(self, network, host):
        return self.start(network, host, "--nnodes", "1:2", "--rdzv-endpoint", network.hosts[0].address, "--max-restarts", "2")

    def lost_rank(self, network):
        first, second = self.numbered(network, 0), self.numbered(network, 1)
        times = []
        for launcher, step in ((second, 35), (first, 75)):
            first.wait_for_step(step)
            moment = time.monotonic()
            os.kill(launcher.ranks()[0], signal.SIGKILL)
            times.append(first.first_step_after(moment))
        for launcher in (first, second):
            launcher.end(0)
        self.undisturbed.expect(first.text(), "after lost ranks")
        self.report("a killed rank", times, FIRST_STEP_WITHIN_S)

    def lost_host(self, network):
        """Its launcher and its ranks are gone at once; a batch system starts it again."""
        first, second = self.numbered(network, 0), self.numbered(network, 1)
        first.wait_for_step(35)
        for process in (*second.ranks(), second.process.pid):
            os.kill(process, signal.SIGKILL)
        moment = time.monotonic()
        again = self.numbered(network, 1)
        took = first.first_step_after(moment)
        for launcher in (first, again):
            launcher.end(0)
        if "is lost: its launcher has ended" not in first.text() and " failed: " not in first.text():
            fail(f"the loss was not named: {first.text()}")
        self.undisturbed.expect(first.text(), "after a lost host")
        self.report("a lost host that came again", [took], FIRST_STEP_WITHIN_S)

    def lost_host_for_good(self, network):
        first, second = self.elastic(network, 0), self.elastic(network, 1)
        first.wait_for_step(35)
        moment = time.monotonic()
        for process in (*second.ranks(), second.process.pid):
            os.kill(process, signal.SIGKILL)
        took = first.first_step_after(moment)
        first.end(0)
        self.expect_sizes(first, [2, 1])
        self.undisturbed.expect(first.text(), "with fewer hosts", same_size=False)
        self.report("a lost host, without it", [took], FIRST_STEP_WITHIN_S)

    def host_that_joins(self, network):
        """The checkpoint that is taken for the change loses no step."""
        first = self.start(network, 0, "--nnodes", "1:2", "--rdzv-endpoint", network.hosts[0].address, "--rdzv-conf", "last_call_timeout=0")
        first.wait_for_step(15)
        second = self.elastic(network, 1)
        for launcher in (first, second):
            launcher.end(0)
        self.expect_sizes(first, [1, 2])
        self.undisturbed.expect(first.text(), "with more hosts", same_size=False)
        if len(STEP.findall(first.text())) != STEPS:
            fail(f"steps were made twice: {first.text()}")

    def cut_link(self, network):
        first, second = self.elastic(network, 0), self.elastic(network, 1)
        first.wait_for_step(35)
        moment = time.monotonic()
        network.link.cut()
        took = first.first_step_after(moment)
        first.end(0)
        self.expect_sizes(first, [2, 1])
        second.end(1)
        if "no sign of life for 5000 ms" not in second.text():
            fail(f"the host behind the cut link: {second.text()}")
        self.undisturbed.expect(first.text(), "after the link was cut", same_size=False)
        self.report("a cut link", [took], CUT_WITHIN_S)

    @staticmethod
    def expect_sizes(launcher, expected):
        found = [int(line.split()[1].rstrip(",")) for _, line in launcher.lines if line.startswith("processes:")]
        if found != expected:
            fail(f"attempts had {found} ranks; expected {expected}: {launcher.text()}")

    @staticmethod
    def report(what, times, within):
        print(f"{what}: the first step of the next attempt after {', '.join(f'{took:.2f}' for took in times)} s", flush=True)
        if max(times) > within:
            fail(f"{what}: expected within {within} s")

    def test(self, method):
        self.run = self.folder / method.__name__
        begin = time.monotonic()
        try:
            with Network() as network:
                try:
                    method(network)
                finally:
                    for launcher in self.launchers:
                        launcher.close()
                    self.launchers = []
        except NoLink as error:
            print(f"two hosts cannot be made here: {error}")
            sys.exit(SKIPPED)
        print(f"{method.__name__}: {time.monotonic() - begin:.1f} s", flush=True)


def main():
    if len(sys.argv) < 3:
        fail(__doc__.splitlines()[0])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    with tempfile.TemporaryDirectory(prefix="accel-loss-") as folder:
        tests = HostLoss(sys.argv[1], sys.argv[2], folder)
        for method in (tests.lost_rank, tests.lost_host, tests.lost_host_for_good, tests.host_that_joins, tests.cut_link):
            if len(sys.argv) == 3 or method.__name__ in sys.argv[3:]:
                tests.test(method)


if __name__ == "__main__":
    main()
