#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Launchers and ranks that are killed at random times by random signals leave nothing: no process, port, file in
/dev/shm or temporary folder.

usage: launch_kills_test.py PATH_OF_ACCEL [HOW_MANY [SEED]]
"""

import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time

from private_shared_memory import nothing_left_in_shared_memory
from run_ranks import free_port

RANKS = 4
GONE_WITHIN = 10.0
SIGNALS = [signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGSEGV,
           signal.SIGABRT, signal.SIGSTOP]
# Each rank has a child, one that leaves its group, a file in /dev/shm that has no name, and rank 0 a port. Some ignore
# that they are asked to end.
PROGRAM = """
import os, signal, socket, subprocess, sys, time
if os.environ["RANK"] in os.environ["STUBBORN"]: signal.signal(signal.SIGTERM, signal.SIG_IGN)
for new_session in (False, True):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"], start_new_session=new_session)
memory = open(os.open("/dev/shm", os.O_TMPFILE | os.O_RDWR), "wb"); memory.write(b"x" * 65536)
if os.environ["RANK"] == "0":
    listener = socket.socket(); listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(os.environ["MASTER_PORT"]))); listener.listen()
print("rank", os.environ["RANK"], flush=True)
open(os.path.join(os.environ["FOLDER"], "rank." + os.environ["RANK"] + "." + str(os.getpid())), "w").close()
while True: time.sleep(0.01)
"""


def marked_processes(mark):
    """Processes of this test, and the guardian of a launcher, by a variable that they have inherited."""
    found = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes():
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            pass
    return found


def wait_until(condition):
    end = time.monotonic() + GONE_WITHIN
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def kill_once(accel, number, choose):
    mark = f"ACCEL_KILLS_TEST={os.getpid()}.{number}"
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="accel-kills-") as folder:
        name, value = mark.split("=")
        stubborn = choose.choice(["", "1", "03", "0123"])
        options = choose.choice([[], ["--prefix"], ["--log-dir", folder + "/logs"], ["--max-restarts", "1"]])
        environment = dict(os.environ, FOLDER=folder, STUBBORN=stubborn, **{name: value})
        launcher = subprocess.Popen([accel, "launch", "--num-processes", str(RANKS), "--main-process-port", str(port),
                                     *options, "--", sys.executable, "-c", PROGRAM],
                                    env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(choose.random() * 0.4)
        ranks = [int(name.rsplit(".", 1)[1]) for name in os.listdir(folder) if name.startswith("rank.")]
        victim = choose.choice([launcher.pid, *ranks])
        sent = choose.choice(SIGNALS)
        what = f"{number}: {signal.Signals(sent).name} to {'the launcher' if victim == launcher.pid else 'a rank'}, " \
               f"{len(ranks)} ranks had started, stubborn '{stubborn}', options {options}"
        try:
            os.kill(victim, sent)
        except ProcessLookupError:
            pass
        # A stopped process goes on, or is ended for good; a launcher that starts the ranks again is told to end.
        time.sleep(choose.random() * 0.1)
        if sent == signal.SIGSTOP or "--max-restarts" in options:
            os.kill(launcher.pid, signal.SIGCONT)
            launcher.send_signal(choose.choice([signal.SIGTERM, signal.SIGKILL]))
        # Ranks that were told to end have half a minute for a checkpoint; a second signal says that there is no time.
        end = time.monotonic() + GONE_WITHIN
        while launcher.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
            if time.monotonic() > end - GONE_WITHIN + 2:
                launcher.terminate()
                time.sleep(0.2)
        if launcher.poll() is None:
            launcher.kill()
            launcher.wait()
            sys.exit(f"{what}: the launcher did not end")
        if not wait_until(lambda: not marked_processes(mark.encode())):
            left = marked_processes(mark.encode())
            for process in left:
                os.kill(process, signal.SIGKILL)
            sys.exit(f"{what}: left {left}")
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
        unexpected = [name for name in os.listdir(folder) if not name.startswith("rank.") and name != "logs"]
        if unexpected:
            sys.exit(f"{what}: left {unexpected}")


def main():
    accel = os.path.abspath(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(1 << 30)
    print(f"{count} kills with seed {seed}", flush=True)
    choose = random.Random(seed)
    with nothing_left_in_shared_memory():
        for number in range(count):
            kill_once(accel, number, choose)
    print("nothing was left")


if __name__ == "__main__":
    main()
