# SPDX-License-Identifier: Apache-2.0
"""A rank that is killed ends the other with an error within its timeout: killed_rank.py, or as a rank: killed_rank.py rank"""

import os
import signal
import socket
import subprocess
import sys
import time

from result import figure, require

TIMEOUT = 10  # seconds of a collective
SLACK = 5


def rank():
    import accel
    from accel import Accelerator

    accelerator = Accelerator()
    tensor = accel.ones(1000, device=accelerator.device)
    while True:
        accelerator.reduce(tensor, "mean").sum().item()
        print("reduced", flush=True)


def main():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    job = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "ACCEL_TIMEOUT_MS": str(TIMEOUT * 1000)}
    ranks = [subprocess.Popen([sys.executable, __file__, "rank"], env={**os.environ, **job, "RANK": str(number), "LOCAL_RANK": str(number)},
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for number in (0, 1)]
    require(ranks[0].stdout.readline() == "reduced\n", f"the ranks did not begin: {ranks[0].stderr.read()[-600:] if ranks[0].poll() else ''}")
    ranks[1].send_signal(signal.SIGKILL)
    began = time.monotonic()
    try:
        _, said = ranks[0].communicate(timeout=TIMEOUT + SLACK)
    except subprocess.TimeoutExpired:
        ranks[0].kill()
        require(False, f"rank 0 still ran {TIMEOUT + SLACK} s after rank 1 was killed; its timeout is {TIMEOUT} s")
    ranks[1].communicate()
    seconds = time.monotonic() - began
    print(said)
    require(ranks[0].returncode > 0, f"rank 0 ended with status {ranks[0].returncode}")
    require("Error" in said, f"rank 0 ended without an error: {said[-300:]}")
    figure("killed_rank", seconds=round(seconds, 2), error=said.strip().splitlines()[-1][:300])


rank() if sys.argv[1:] == ["rank"] else main()
