#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks on two hosts whose link is good, slow and lossy, or cut: hosts_test.py RANK_PROGRAM

Each host has a /dev/shm of its own, in which nothing may be left. Needs what two_hosts.py needs; a test for which that
is not there is left out, and without any, all are skipped (77).
"""

import signal
import subprocess
import sys
import time

from looping_ranks import LATE_MS, LoopingRanks
from run_ranks import expect_ends, fail, start_directly, wait_until_listening
from two_hosts import RANKS, Network, NoLink

SKIPPED = 77


def other_host(rank):
    return [peer for peer in range(RANKS) if peer // 2 != rank // 2]


def good_link(program):
    with Network() as network:
        network.run(program, "collectives", "7")
        network.run(program, "collectives", "65537")
        network.run(program, "objects")
        network.run(program, "ddp")


def bad_link(program):
    with Network(delay_s=0.02, loss=0.01) as network:
        network.run(program, "collectives", "1025")
        network.run(program, "objects")
        network.run(program, "ddp")


def ipv6_link(program):
    with Network(ipv6=True) as network:
        network.run(program, "collectives", "65537")
        network.run(program, "objects")


def cut_link(program):
    """Whoever waits for the other host says so at its deadline; who waits for its neighbour may hear it from there."""
    with Network() as network, LoopingRanks(program, RANKS, "until_silent", prefix=network.command_prefix) as ranks:
        network.link.cut()
        statuses = {"ACCEL_ERROR_TIMEOUT", "ACCEL_ERROR_PEER_LOST"}
        ranks.expect_failure(range(RANKS), statuses, other_host, LATE_MS)


def unreachable_host(program):
    """Nothing refuses the connection; it just gets no answer."""
    with Network() as network:
        network.link.cut()
        ranks = start_directly(program, RANKS, "until_silent", prefix=network.command_prefix, stderr=subprocess.PIPE,
                               text=True)
        expect_ends(ranks, {rank: 1 for rank in range(RANKS)}, "ranks on hosts that cannot reach each other")
        for rank, expected in ((0, "2, 3;"), (2, "cannot reach rank 0"), (3, "cannot reach rank 0")):
            errors = ranks[rank].communicate()[1]
            if expected not in errors:
                fail(f"rank {rank} says {errors!r}; expected {expected!r}")


def death_in_the_start(program):
    """A rank ends while the last one is awaited, which never comes: those on the other host hear of it, too."""
    with Network() as network:
        ranks = start_directly(program, RANKS, "objects", stderr=subprocess.PIPE, text=True,
                               prefix=lambda rank: network.command_prefix(rank) if rank < 3 else ["sh", "-c", "exec sleep 60"])
        for rank in range(3):
            wait_until_listening(ranks[rank])
        time.sleep(1)
        ranks[2].kill()
        expect_ends(ranks, {0: 1, 1: 1}, "ranks one of which died in the start")
        for rank in (0, 1):
            errors = ranks[rank].communicate()[1]
            if "rank 2 ended" not in errors:
                fail(f"rank {rank} says {errors!r}; expected that rank 2 ended")


TESTS = (good_link, bad_link, ipv6_link, cut_link, unreachable_host, death_in_the_start)


def main():
    if len(sys.argv) != 2:
        fail(__doc__.splitlines()[0])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    left_out = 0
    for test in TESTS:
        start = time.monotonic()
        try:
            test(sys.argv[1])
            print(f"{test.__name__}: {time.monotonic() - start:.1f} s", flush=True)
        except NoLink as error:
            left_out += 1
            print(f"{test.__name__} is left out, two hosts cannot be made here: {error}", flush=True)
    if left_out == len(TESTS):
        sys.exit(SKIPPED)


if __name__ == "__main__":
    main()
