#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs rank_program as real processes: run_ranks.py ACCEL RANK_PROGRAM TEST

Most tests go through `accel launch`. Those in which a rank dies or stops start their ranks themselves, because a launcher would end
the others before they can say what they saw. Whatever happens, no process and no shared memory is left."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time

from private_shared_memory import nothing_left_in_shared_memory

LIMIT_S = 100


def fail(message):
    sys.exit(message)


def launch(accel, program, count, *arguments):
    command = [accel, "launch", "--num-processes", str(count), "--", program, *arguments]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        status = process.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        fail(f"{' '.join(arguments)} on {count} ranks did not end within {LIMIT_S} s")
    if status != 0:
        fail(f"{' '.join(arguments)} on {count} ranks ended with status {status}")


_claims = []  # of ports


def free_port():
    """One below those that the system gives to programs that ask for any, or connect: they would take it before a rank listens. Launchers
    and other tests pass it over until this process ends (src/launch/ranks/claimed_port.hpp)."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as range_of_system:
        first = int(range_of_system.read().split()[0])
    while True:
        port = random.randrange(first // 2, first)
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with socket.socket() as probe, contextlib.suppress(OSError):
            claim.bind(f"\0libaccel port {port}")
            probe.bind(("127.0.0.1", port))
            _claims.append(claim)
            return port
        claim.close()


def listening_sockets(process):
    """Addresses and ports where a process listens."""
    own = set()
    for name in os.listdir(f"/proc/{process.pid}/fd"):
        try:
            own.add(os.readlink(f"/proc/{process.pid}/fd/{name}"))
        except FileNotFoundError:
            pass
    with open(f"/proc/{process.pid}/net/tcp", encoding="ascii") as table:
        entries = [line.split() for line in table][1:]
    return [(socket.inet_ntoa(bytes.fromhex(address)[::-1]), int(port, 16)) for entry in entries
            for address, port in [entry[1].split(":")] if entry[3] == "0A" and f"socket:[{entry[9]}]" in own]


def wait_until_listening(process):
    """A rank listens before it tells the others that it is there."""
    end = time.monotonic() + LIMIT_S
    while not listening_sockets(process):
        if process.poll() is not None or time.monotonic() > end:
            fail("a rank does not listen")
        time.sleep(0.005)


def start_directly(program, count, *arguments, own_arguments=None, prefix=lambda rank: [], stdin=subprocess.DEVNULL,
                   **options):
    """One process a rank, with the environment that launchers set. `own_arguments` are those of single ranks, `prefix`
    is a command that executes the rest of its line."""
    port = free_port()
    ranks = []
    for rank in range(count):
        environment = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(count), LOCAL_WORLD_SIZE=str(count),
                           MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        command = [*prefix(rank), program, *arguments, *(own_arguments or {}).get(rank, [])]
        ranks.append(subprocess.Popen(command, env=environment, stdin=stdin, **options))
    return ranks


def expect_ends(ranks, expected, what):
    """Waits for the ranks whose end is expected; the others are ended."""
    end = time.monotonic() + LIMIT_S
    try:
        for rank, status in expected.items():
            try:
                found = ranks[rank].wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                fail(f"{what}: rank {rank} did not end within {LIMIT_S} s")
            if found != status:
                fail(f"{what}: rank {rank} ended with {found}; expected {status}")
    finally:
        for process in ranks:
            process.kill()
            process.wait()


def launched(name):
    def run(accel, program):
        for count in (2, 4):
            launch(accel, program, count, name)
    return run


def with_folder(name, is_file):
    def run(accel, program):
        for count in (2, 4):
            with tempfile.TemporaryDirectory(prefix="accel-ranks-") as folder:
                launch(accel, program, count, name, os.path.join(folder, "file") if is_file else folder)
                left = set(os.listdir(folder)) - {"file", "run", "state"}
                if left:
                    fail(f"{name} left {sorted(left)}")
    return run


def resume_epoch(accel, program):
    with tempfile.TemporaryDirectory(prefix="accel-ranks-") as folder:
        launch(accel, program, 2, "leave_epoch", folder)
        for count in (1, 2, 3):
            launch(accel, program, count, "resume_epoch", folder)


def sharding_growth(accel, program):
    for state_dict_type in (1, 3):  # ACCEL_STATE_DICT_TYPE_FULL_STATE_DICT, SHARDED_STATE_DICT
        with tempfile.TemporaryDirectory(prefix="accel-ranks-") as folder:
            launch(accel, program, 2, "sharding_growth", f"{folder} {state_dict_type}")


def split_growth(accel, program):
    os.environ["PARALLELISM_CONFIG_TP_SIZE"] = "2"
    sharding_growth(accel, program)


def split_memory(accel, program):
    with tempfile.TemporaryDirectory(prefix="accel-ranks-") as folder:
        launch(accel, program, 1, "split_memory", folder)
        for count in (2, 3):
            os.environ["PARALLELISM_CONFIG_TP_SIZE"] = str(count)
            launch(accel, program, count, "split_memory", folder)


def mesh(accel, program):
    os.environ["PARALLELISM_CONFIG_TP_SIZE"] = "2"
    launch(accel, program, 4, "mesh")
    # Sizes of 1 alone, as Accelerate's launcher sets them: all ranks are replicas.
    os.environ.update(PARALLELISM_CONFIG_TP_SIZE="1", PARALLELISM_CONFIG_DP_REPLICATE_SIZE="1")
    launch(accel, program, 2, "ddp")


def context(accel, program):
    for count in (2, 3):
        os.environ["PARALLELISM_CONFIG_CP_SIZE"] = str(count)
        for method in ("0", "1", "2"):  # ACCEL_CONTEXT_METHOD_ALL_GATHER, RING, ULYSSES
            launch(accel, program, count, "context", method)


def kill(accel, program):
    for count in (2, 4):
        for elements in ("1", "1000003"):
            ranks = start_directly(program, count, "kill", elements)
            expected = {rank: -signal.SIGKILL if rank == 1 else 0 for rank in range(count)}
            expect_ends(ranks, expected, f"kill with {elements} elements on {count} ranks")


def registered_kill(accel, program):
    for count, is_sharded in ((2, "0"), (3, "0"), (3, "1")):
        expected = {rank: -signal.SIGKILL if rank == 1 else 0 for rank in range(count)}
        expect_ends(start_directly(program, count, "registered_kill", is_sharded), expected, f"registered_kill on {count} ranks")


def kill_unread(accel, program):
    for count in (2, 4):
        expected = {rank: -signal.SIGKILL if rank == 1 else 0 for rank in range(count)}
        expect_ends(start_directly(program, count, "kill_unread"), expected, f"kill_unread on {count} ranks")


def shrink(accel, program):
    for count, lost in ((2, "1"), (2, "0"), (4, "1"), (4, "0"), (4, "01")):
        expected = {rank: -signal.SIGKILL if str(rank) in lost else 0 for rank in range(count)}
        expect_ends(start_directly(program, count, "shrink", lost), expected, f"shrink on {count} ranks after {lost} died")


def shrink_silent(accel, program):
    expect_ends(start_directly(program, 3, "shrink_silent"), {1: 0, 2: 0}, "shrink while rank 0 is stopped")


def stop(accel, program):
    for count in (2, 4):
        expect_ends(start_directly(program, count, "stop"), {rank: 0 for rank in range(count - 1)}, f"stop on {count} ranks")


def first_fails(accel, program):
    for count in (2, 4):
        expect_ends(start_directly(program, count, "first_fails"), {rank: 0 for rank in range(count)}, f"first_fails on {count} ranks")


TESTS = {
    "collectives": launched("collectives"),
    "objects": launched("objects"),
    "ddp": launched("ddp"),
    "hooks": launched("hooks"),
    "checkpoint": with_folder("checkpoint", False),
    "uneven": launched("uneven"),
    "dispatch": launched("dispatch"),
    "resume_epoch": resume_epoch,
    "mismatch": launched("mismatch"),
    "timeout": launched("timeout"),
    "kill": kill,
    "kill_unread": kill_unread,
    "stop": stop,
    "works": launched("works"),
    "mesh": mesh,
    "context": context,
    "many_groups": launched("many_groups"),
    "environment": launched("environment"),
    "shrink": shrink,
    "shrink_silent": shrink_silent,
    "sharded_parameters": launched("sharded_parameters"),
    "registered_parameters": launched("registered_parameters"),
    "registered_kill": registered_kill,
    "sharding_growth": sharding_growth,
    "split_growth": split_growth,
    "split_memory": split_memory,
    "first": with_folder("first", True),
    "first_fails": first_fails,
}


def main():
    if len(sys.argv) != 4 or sys.argv[3] not in TESTS:
        fail(__doc__.splitlines()[0] + "\ntests: " + " ".join(TESTS))
    with nothing_left_in_shared_memory():
        TESTS[sys.argv[3]](sys.argv[1], sys.argv[2])


if __name__ == "__main__":
    main()
