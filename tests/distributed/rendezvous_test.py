#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that meet under bad circumstances: strangers, other jobs, wrong counts, no server.

usage: rendezvous_test.py RANK_PROGRAM [unittest argument ...]
"""

import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
import time
import unittest

from looping_ranks import LoopingRanks
from rank_test_case import LIMIT_S, RankTestCase
from run_ranks import free_port, listening_sockets

PROGRAM = ""
IN_TIME_S = 30  # the deadline, five seconds, and the start of a process on a busy machine


class RendezvousTest(RankTestCase):
    def rank(self, rank, size, command="until_silent", token="one", limit=None, **variables):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1",
                           MASTER_PORT=str(self.port), ACCEL_JOB_TOKEN=token, **variables)
        for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"):
            environment.pop(name, None)
        limited = [] if limit is None else ["sh", "-c", f'ulimit -n {limit} && exec "$@"', "sh"]
        return self.start([*limited, PROGRAM, command], environment)

    def wait_for_server(self):
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except ConnectionRefusedError:
                time.sleep(0.01)
        self.fail("rank 0 does not serve")


class Strangers(RendezvousTest):
    def test_garbage_does_not_disturb(self):
        rank_0 = self.rank(0, 2, "objects")
        self.wait_for_server()
        held = []
        for garbage in (b"", b"\0", b"GET / HTTP/1.0\r\n\r\n", b"\xff" * 4096, bytes(range(256)) * 256,
                        b"\x00\xce\xf7\x85\x3c" * 3, b"\x07" + b"\xff" * 8):
            stranger = socket.create_connection(("127.0.0.1", self.port))
            held.append(stranger)
            try:
                stranger.sendall(garbage)
            except OSError:  # thrown out already
                pass
        try:
            self.assert_done(rank_0, self.rank(1, 2, "objects"))
        finally:
            for stranger in held:
                stranger.close()

    def test_another_job_is_turned_away_and_disturbs_nobody(self):
        rank_0 = self.rank(0, 3, "objects")
        rank_2 = self.rank(2, 3, "objects")
        for token in ("two", ""):
            stranger = self.rank(1, 3, "objects", token=token)
            self.assert_fails(stranger, "rank 1 of 3 belongs to another job", str(self.port), seconds=IN_TIME_S)
        self.assert_done(rank_0, rank_2, self.rank(1, 3, "objects"))

    def test_silent_connections_leave_room_for_the_ranks(self):
        rank_0 = self.rank(0, 2, "objects", limit=128)
        self.wait_for_server()
        with contextlib.ExitStack() as held:
            for _ in range(200):
                held.enter_context(socket.create_connection(("127.0.0.1", self.port)))
            self.assert_done(rank_0, self.rank(1, 2, "objects"))

    # What is refused is said where the right ranks do not come.
    def test_refused_connections_are_counted(self):
        rank_0 = self.rank(0, 2)
        self.wait_for_server()
        with socket.create_connection(("127.0.0.1", self.port)) as stranger:
            stranger.sendall(b"\x00\xce\xf7\x85\x3c\x07")
            self.assertEqual(stranger.recv(1), b"")
        self.assert_fails(rank_0, "of 2 ranks these did not come", "1 connection", "ACCEL_JOB_TOKEN", seconds=IN_TIME_S)


class Ranks(RendezvousTest):
    def test_a_rank_that_is_there_twice(self):
        rank_0, rank_1 = self.rank(0, 3, "objects"), self.rank(1, 3, "objects")
        time.sleep(0.1)
        again = self.rank(1, 3, "objects")
        first_to_end = self.first_to_end(rank_1, again)
        self.assert_fails(first_to_end, "rank 1 of 3 is there twice", "RANK")
        other = again if first_to_end is rank_1 else rank_1
        self.assert_done(rank_0, other, self.rank(2, 3, "objects"))

    def first_to_end(self, *processes):
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            for process in processes:
                if process.poll() is not None:
                    return process
            time.sleep(0.01)
        self.fail("no process ended")

    def test_another_number_of_ranks(self):
        rank_0 = self.rank(0, 2, "objects")
        self.assert_fails(self.rank(1, 3, "objects"), "rank 1 of 3 came to a job of 2 ranks", "WORLD_SIZE")
        self.assert_fails(rank_0, "turned away: rank 1 of 3 came to a job of 2 ranks", seconds=IN_TIME_S)

    # Regression: messages had names of keys in place of the ranks that did not come.
    def test_ranks_that_do_not_come_are_named(self):
        rank_2 = self.rank(2, 4, "objects")
        rank_0 = self.rank(0, 4)
        self.assert_fails(rank_0, "of 4 ranks these did not come", ": 1, 3;", seconds=IN_TIME_S)
        self.assert_fails(rank_2, "rank 0 could not start: of 4 ranks these did not come", ": 1, 3;", seconds=IN_TIME_S)


class Server(RendezvousTest):
    def test_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", self.port))
            taken.listen()
            self.assert_fails(self.rank(0, 2), f"port {self.port}", "in use", "MASTER_PORT")

    def test_nobody_serves(self):
        self.assert_fails(self.rank(1, 2), "rank 1 of 2 cannot reach rank 0", seconds=IN_TIME_S)

    def test_a_server_that_says_nothing(self):
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", self.port))
            silent.listen()
            self.assert_fails(self.rank(1, 2), "did not answer within", seconds=IN_TIME_S)

    def test_a_server_of_something_else(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", self.port))
            other.listen()
            thread = threading.Thread(target=self.answer, args=(other,), daemon=True)
            thread.start()
            self.assert_fails(self.rank(1, 2), "the store of rank 0", seconds=IN_TIME_S)
            other.shutdown(socket.SHUT_RDWR)
            thread.join()

    @staticmethod
    def answer(listener):
        while True:
            try:
                connection = listener.accept()[0]
            except OSError:
                return
            with connection:
                connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n" * 100)


class Transport(unittest.TestCase):
    """Strangers at the ports where UCX listens. One that speaks its protocol could end the rank: see docs/faults.md."""

    GARBAGE = (b"", b"\0", b"GET / HTTP/1.0\r\n\r\n", b"\xff" * 4096, bytes(range(256)) * 400)

    def test_a_job_of_one_host_is_open_to_no_other(self):
        for variables in [], ["ACCEL_SHARED_MEMORY=0"], ["ACCEL_SHARED_MEMORY=0", "UCX_TLS=tcp,self"]:
            with self.subTest(variables=variables), LoopingRanks(PROGRAM, 2, "until_lost", prefix=lambda rank: ["env", *variables]) as ranks:
                hosts = {host for process in ranks.processes for host, _ in listening_sockets(process)}
                self.assertEqual(hosts, {"127.0.0.1"})

    def test_garbage_does_not_disturb(self):
        for shared_memory in "1", "0":
            with self.subTest(shared_memory=shared_memory), contextlib.ExitStack() as held, \
                    LoopingRanks(PROGRAM, 2, "until_lost", prefix=lambda rank: [
                        "env", f"ACCEL_SHARED_MEMORY={shared_memory}", "UCX_TLS=tcp,self"]) as ranks:
                ports = [port for process in ranks.processes for port in listening_sockets(process)]
                self.assertGreaterEqual(len(ports), 2)
                for port in ports:
                    for garbage in self.GARBAGE:
                        stranger = held.enter_context(socket.create_connection(port))
                        with contextlib.suppress(OSError):  # thrown out already
                            stranger.sendall(garbage)
                time.sleep(0.2)
                ranks.processes[1].kill()
                ranks.expect_failure([0], {"ACCEL_ERROR_PEER_LOST"}, lambda rank: [1], IN_TIME_S * 1000)


class Launchers(RendezvousTest):
    """Ranks that other launchers start know their place from these variables alone."""

    def test_their_variables(self):
        for rank, size, local_rank, local_size in (
                ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                 "OMPI_COMM_WORLD_LOCAL_SIZE"),
                ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
                ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE")):
            with self.subTest(rank):
                self.port = free_port()
                self.assert_done(*(self.rank_by({rank: i, size: 2, local_rank: i, local_size: 2}) for i in range(2)))

    def rank_by(self, variables):
        removed = re.compile("RANK|WORLD_SIZE|LOCAL_.*|(OMPI|PMI|MPI|SLURM|MV2)_.*")
        environment = {name: value for name, value in os.environ.items() if not removed.fullmatch(name)}
        environment.update({name: str(value) for name, value in variables.items()}, MASTER_PORT=str(self.port))
        return self.start([PROGRAM, "objects"], environment)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
