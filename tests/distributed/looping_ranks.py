# SPDX-License-Identifier: Apache-2.0
"""Ranks that make collectives until one fails (rank_program until_lost, until_silent), and what they say about it."""

import re
import signal
import subprocess
import sys

from run_ranks import fail, start_directly

LIMIT_S = 30
LATE_MS = 9000  # when the deadline of until_silent, five seconds, has surely passed; that of until_lost is a minute
REPORT = re.compile(r"(\d+) ms (\w+) (.*)")


def names(message, ranks):
    """Whether the message names one of the ranks."""
    named = {int(rank) for listed in re.findall(r"\branks? (\d+(?:, \d+)*)", message) for rank in listed.split(", ")}
    return bool(named & set(ranks))


def give_up(number, _):
    sys.exit(f"a rank was silent for {LIMIT_S} s" if number == signal.SIGALRM else "ended by SIGTERM")


class LoopingRanks:
    """As a context: when it is entered all ranks are in their loop, when it is left none is there any more."""

    def __init__(self, program, count, command, **options):
        for number in (signal.SIGALRM, signal.SIGTERM):
            signal.signal(number, give_up)
        self.processes = start_directly(program, count, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, **options)

    def __enter__(self):
        try:
            for rank in range(len(self.processes)):
                line = self.read_line(rank)
                if line != "running":
                    fail(f"rank {rank} did not begin its loop: {line!r}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()

    def read_line(self, rank):
        signal.alarm(LIMIT_S)
        try:
            return self.processes[rank].stdout.readline().strip()
        finally:
            signal.alarm(0)

    def expect_failure(self, ranks, statuses, culprits, limit_ms, pattern=""):
        """Each of the ranks reports one of the statuses, names one of culprits(rank) in a message with that pattern, and
        ends in order. Returns the milliseconds of the slowest."""
        slowest = 0
        for rank in ranks:
            line = self.read_line(rank)
            found = REPORT.fullmatch(line)
            expected = f"one of {sorted(statuses)} that names one of ranks {culprits(rank)} within {limit_ms} ms {pattern}"
            if not found or int(found[1]) > limit_ms or found[2] not in statuses or not names(found[3], culprits(rank)) \
                    or not re.search(pattern, found[3]):
                fail(f"rank {rank} reports {line!r}; expected {expected}")
            slowest = max(slowest, int(found[1]))
        for rank in ranks:
            self.processes[rank].stdin.close()
            if self.processes[rank].wait(LIMIT_S) != 0:
                fail(f"rank {rank} ended with {self.processes[rank].returncode} after its report; expected 0")
        return slowest
