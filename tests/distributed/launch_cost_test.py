#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the launcher costs, with room for a busy machine; bench/results/earlier/the_launcher.json has what was measured.

usage: launch_cost_test.py PATH_OF_ACCEL [--print]
"""

import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOM = 4  # times the bound, where other tests run beside this one


def seconds(command, repeat):
    times = []
    for _ in range(repeat):
        begin = time.monotonic()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        times.append(time.monotonic() - begin)
    return statistics.median(times)


def end_after_failure(accel):
    """Seconds from the end of a rank until the launcher and all others, which ignore that they are asked, are gone."""
    with tempfile.TemporaryDirectory() as folder:
        script = (f'trap "" TERM; touch {folder}/$RANK; while [ ! -f {folder}/go ]; do sleep 0.01; done;'
                  ' [ $RANK = 1 ] && exit 3; while true; do sleep 1; done')
        job = subprocess.Popen([accel, "launch", "--num-processes", "4", "--", "sh", "-c", script], stderr=subprocess.DEVNULL)
        while len(os.listdir(folder)) < 4:
            time.sleep(0.01)
        open(os.path.join(folder, "go"), "w", encoding="ascii").close()
        begin = time.monotonic()
        if job.wait(60) != 3:
            sys.exit("the launcher did not end with the status of the rank that failed")
        return time.monotonic() - begin


def memory_of(accel, ranks):
    """Megabytes of the launcher of so many ranks, at most."""
    script = 'if [ $RANK = 0 ]; then grep VmHWM /proc/$PPID/status; fi'
    said = subprocess.run([accel, "launch", "--num-processes", str(ranks), "--", "sh", "-c", script],
                          capture_output=True, text=True, check=True).stdout
    return int(said.split()[1]) / 1000


def main():
    accel = os.path.abspath(sys.argv[1])
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit[1], 4096), limit[1]))
    measured = {
        "accel --help, s": (seconds([accel, "--help"], 20), 0.010),
        "accel launch --help, s": (seconds([accel, "launch", "--help"], 20), 0.050),
        "2 processes that end at once, s": (seconds([accel, "launch", "--num-processes", "2", "true"], 5), 0.1),
        "64 processes, s": (seconds([accel, "launch", "--num-processes", "64", "true"], 3), 1),
        "256 processes, s": (seconds([accel, "launch", "--num-processes", "256", "true"], 1), 4),
        "from a failure to the end of all, s": (end_after_failure(accel), 2),
        "memory with 2 processes, MB": (memory_of(accel, 2), 30),
        "memory with 256 processes, MB": (memory_of(accel, 256), 30),
    }
    failed = False
    for name, (value, bound) in measured.items():
        room = 1 if name.startswith("memory") else ROOM
        failed = failed or value > bound * room
        print(f"{name:40} {value:8.4f} of {bound}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    signal.alarm(200)
    main()
