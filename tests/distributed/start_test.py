#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs that start where something is missing: a rank that dies on the way, descriptors, threads, names, /dev/shm.

usage: start_test.py RANK_PROGRAM [unittest argument ...]

Those that need root, or a name space that this machine does not give, are skipped.
"""

import os
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

from looping_ranks import LoopingRanks
from rank_test_case import RankTestCase
from run_ranks import free_port, wait_until_listening

PROGRAM = ""
SOON_S = 20  # far less than the deadline of the ranks, a minute, and enough on a busy machine
NOBODY = 65534


class StartTest(RankTestCase):
    def rank(self, rank, size, prefix=(), before=None, command="objects", **variables):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank),
                           LOCAL_WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(self.port), **variables)
        return self.start([*prefix, PROGRAM, command], environment, before)

    def assert_says(self, process, *words):
        self.assert_fails(process, *words, seconds=SOON_S)

    @staticmethod
    def wait_until_there(process):
        """With a moment for the others to hear of it."""
        wait_until_listening(process)
        time.sleep(1)


def needs_root():
    return unittest.skipUnless(os.getuid() == 0, "only root may do that")


def mounting(script, *arguments):
    """A command that mounts something for the rest of its line alone."""
    return ["unshare", "--mount", "sh", "-ec", f'{script}; shift {len(arguments)}; exec "$@"', "sh", *arguments]


def needs_mounts():
    try:
        works = subprocess.run([*mounting("mount -t tmpfs none /dev/shm"), "true"], stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        works = False
    return unittest.skipUnless(works, "no mount name space can be made here")


class Deaths(StartTest):
    # Regression: a rank that died during the start was noticed after ten minutes.
    def test_a_rank_that_dies_while_others_are_awaited(self):
        ranks = [self.rank(rank, 4) for rank in range(3)]  # the last one never comes
        for rank in ranks:
            self.wait_until_there(rank)
        ranks[1].kill()
        for rank in (0, 2):
            self.assert_says(ranks[rank], "rank 1 ended", "ACCEL_ERROR_PEER_LOST")

    def test_rank_0_dies_while_others_are_awaited(self):
        ranks = [self.rank(rank, 3) for rank in range(2)]
        for rank in ranks:
            self.wait_until_there(rank)
        ranks[0].kill()
        self.assert_says(ranks[1], "rank 1 lost the store of rank 0", "ACCEL_ERROR_PEER_LOST")

    # Regression: a rank 0 that ended as soon as it had its state took the store from ranks that still read in it.
    def test_rank_0_ends_as_soon_as_it_has_its_state(self):
        """The others still read from its store."""
        for _ in range(10):
            ranks = [self.rank(rank, 3, command="leave") for rank in range(3)]
            self.assert_done(*ranks)

    # Regression: messages had stack traces of LibTorch.
    def test_a_rank_that_dies_in_the_start_of_its_transport(self):
        """At any moment: the other one hears of it, or it came too early to be missed."""
        for milliseconds in range(0, 300, 30):
            with self.subTest(milliseconds=milliseconds):
                self.port = free_port()
                first, second = (self.rank(rank, 2, command="until_lost") for rank in range(2))
                wait_until_listening(second)
                time.sleep(milliseconds / 1000)
                second.kill()
                _, errors = first.communicate(timeout=SOON_S)
                self.assertIn(first.returncode, (0, 1))
                self.assertLessEqual(errors.count("\n"), 1, errors)
                self.assertNotIn("Exception raised from", errors)


class Threads(StartTest):
    # Regression: threads of a core counted as cores, and only a line of the level info said how many there are.
    def test_ranks_share_the_physical_cores_with_a_warning(self):
        """One for the host; none where the user has chosen."""
        folder = pathlib.Path("/sys/devices/system/cpu")
        cores = {tuple((folder / f"cpu{number}/topology" / name).read_text(encoding="ascii") for name in ("physical_package_id", "core_id"))
                 for number in os.sched_getaffinity(0)}
        threads = max(1, len(cores) // 2)
        for given in ({}, {"OMP_NUM_THREADS": "1"}):
            with self.subTest(given=given), unittest.mock.patch.dict(os.environ):
                os.environ.pop("OMP_NUM_THREADS", None)
                self.port = free_port()
                ranks = [self.rank(rank, 2, ACCEL_LOG="warning", **given) for rank in range(2)]
                errors = [rank.communicate(timeout=SOON_S)[1] for rank in ranks]
                self.assertEqual([rank.returncode for rank in ranks], [0, 0], errors)
                warning = f"OMP_NUM_THREADS is not set: each of 2 processes computes with {threads} thread"
                self.assertEqual([warning in lines for lines in errors], [not given, False], errors)


class Signals(StartTest):
    def test_a_rank_that_waits_for_others_can_be_ended(self):
        rank_0 = self.rank(0, 2)
        self.wait_until_there(rank_0)
        rank_0.terminate()
        self.assertEqual(rank_0.wait(SOON_S), -signal.SIGTERM)


class Resources(StartTest):
    def try_limits(self, rank, limits, is_told):
        """Whatever the limit is, the rank works or says what it lacks; `is_told`: whether the other one hears of that."""
        refused = 0
        for limit in limits:
            with self.subTest(limit=limit):
                self.port = free_port()
                few = self.rank(rank, 2, before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
                other = self.rank(1 - rank, 2)
                _, errors = few.communicate(timeout=SOON_S)
                if few.returncode == 0:
                    self.assert_done(other)
                    continue
                refused += 1
                self.assertEqual(few.returncode, 1, errors)
                self.assertIn("file descriptors", errors)
                if is_told(errors):
                    self.assert_says(other, f"rank {rank} could not start", "file descriptors")
                else:
                    other.kill()  # it waits for a rank 0, and would take that of the next job at this port for its own
        self.assertGreater(refused, 2)

    # Regression: too few file descriptors aborted the process in UCX.
    def test_few_file_descriptors(self):
        self.try_limits(1, range(12, 52, 4), lambda errors: True)

    def test_few_file_descriptors_of_rank_0(self):
        """Below some number it cannot even tell the other one."""
        self.try_limits(0, range(8, 68, 6), lambda errors: "to start" in errors)

    # Regression: too few threads aborted the process in UCX.
    @needs_root()
    def test_no_threads(self):
        # Another user, who may still read what is below a private folder.
        capability = "-all,+dac_read_search"
        nobody = ["setpriv", f"--reuid={NOBODY}", "--clear-groups", f"--inh-caps={capability}", f"--ambient-caps={capability}"]
        few = self.rank(1, 2, nobody, before=lambda: resource.setrlimit(resource.RLIMIT_NPROC, (1, 1)))
        other = self.rank(0, 2)
        self.assert_says(few, "needs 2 threads to start and can start 0", "ulimit -u")
        self.assert_says(other, "rank 1 could not start", "threads")


class Surroundings(StartTest):
    # Regression: a rank that was killed left files in `/dev/shm`.
    def test_nothing_has_a_name_in_shared_memory(self):
        """A rank that is killed leaves what has a name."""
        for own in "1", "0":
            with self.subTest(ACCEL_SHARED_MEMORY=own), \
                    LoopingRanks(PROGRAM, 2, "until_lost", prefix=lambda rank: ["env", f"ACCEL_SHARED_MEMORY={own}"]) as ranks:
                for process in ranks.processes:
                    with open(f"/proc/{process.pid}/maps", encoding="utf-8") as mappings:
                        self.assertNotIn("/dev/shm/", mappings.read())

    # Regression: threads of the library ran the program's signal handlers.
    def test_threads_of_the_library_leave_signals_to_the_program(self):
        with LoopingRanks(PROGRAM, 2, "until_lost") as ranks:
            for process in ranks.processes:
                threads = set(os.listdir(f"/proc/{process.pid}/task")) - {str(process.pid)}
                self.assertGreaterEqual(len(threads), 2)
                for thread in threads:
                    with open(f"/proc/{process.pid}/task/{thread}/status", encoding="ascii") as status:
                        lines = dict(line.split(":\t", 1) for line in status)
                    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD):
                        self.assertTrue(int(lines["SigBlk"], 16) >> (number - 1) & 1, (lines["Name"], number))

    # Regression: without room in `/dev/shm` no job started.
    @needs_mounts()
    def test_no_room_in_dev_shm(self):
        for mount in "mount -t tmpfs -o size=4k none /dev/shm", "mount -t tmpfs -o ro none /dev/shm":
            for own in "1", "0":
                with self.subTest(mount=mount, ACCEL_SHARED_MEMORY=own):
                    self.port = free_port()
                    self.assert_done(*(self.rank(rank, 2, mounting(mount), ACCEL_SHARED_MEMORY=own) for rank in range(2)))

    # Regression: a name server that says nothing held each start up by ten seconds.
    @needs_mounts()
    @needs_root()
    def test_a_name_server_that_says_nothing_is_not_asked(self):
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(server.close)
        server.bind(("127.0.0.77", 53))
        folder = tempfile.mkdtemp(prefix="accel-names-")
        self.addCleanup(shutil.rmtree, folder)
        with open(f"{folder}/resolv.conf", "w", encoding="ascii") as configuration:
            configuration.write("nameserver 127.0.0.77\n")
        prefix = mounting('mount --bind "$1" /etc/resolv.conf', f"{folder}/resolv.conf")
        self.assert_done(*(self.rank(rank, 4, prefix) for rank in range(4)))
        server.setblocking(False)
        with self.assertRaises(BlockingIOError):
            server.recv(512)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    unittest.main()
