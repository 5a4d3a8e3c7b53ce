#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that are killed, crash, exit or stop at random places of a loop of collectives.

usage: faults_test.py RANK_PROGRAM [KILLS]

All others say which rank it was: within two seconds when it is gone, at their deadline when it only stands still.
KILLS is the number of ranks that are lost, 20 by default. Whatever happens, no process and no shared memory is left.
"""

import random
import signal
import sys
import time

from looping_ranks import LATE_MS, LIMIT_S, LoopingRanks
from private_shared_memory import nothing_left_in_shared_memory
from run_ranks import fail

KILLS = 20
STOPS = 2
GONE_WITHIN_MS = 2000
EXITS_WITHIN_MS = 10000  # its own end takes a process some time on a busy machine


def harm(process, how, chance):
    if how != "exit":
        time.sleep(chance.uniform(0, 0.05))
        process.send_signal(how)
    if how != signal.SIGSTOP:
        process.wait(LIMIT_S)


def lose(program, count, victim, how, chance):
    """Starts `count` ranks, loses one of them, and returns how many milliseconds the slowest of the others took."""
    own = {victim: [str(chance.randrange(11, 500))]} if how == "exit" else {}
    stands_still = how == signal.SIGSTOP
    statuses = {"ACCEL_ERROR_TIMEOUT" if stands_still else "ACCEL_ERROR_PEER_LOST"}
    limit_ms = {signal.SIGSTOP: LATE_MS, "exit": EXITS_WITHIN_MS}.get(how, GONE_WITHIN_MS)
    command = "until_silent" if stands_still else "until_lost"
    with LoopingRanks(program, count, command, own_arguments=own) as ranks:
        harm(ranks.processes[victim], how, chance)
        others = [rank for rank in range(count) if rank != victim]
        where = rf"\branks? [\d, ]*\b{victim}\b[\d, ]* (is|are|waits?) in " if stands_still else ""
        return ranks.expect_failure(others, statuses, lambda rank: [victim], limit_ms, where)


def main():
    if len(sys.argv) not in (2, 3):
        fail(__doc__)
    program, kills = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else KILLS
    chance = random.Random(1)
    times = []
    with nothing_left_in_shared_memory():
        for i in range(kills):
            count = 2 + i % 3
            how = (signal.SIGKILL, signal.SIGSEGV, "exit", signal.SIGKILL)[i % 4]
            times.append(lose(program, count, chance.randrange(count), how, chance))
        for i in range(STOPS):
            count = 2 + 2 * i
            lose(program, count, chance.randrange(count), signal.SIGSTOP, chance)
    print(f"{kills} ranks were lost; the slowest report came after {max(times)} ms, "
          f"the middle one after {sorted(times)[len(times) // 2]} ms")


if __name__ == "__main__":
    main()
