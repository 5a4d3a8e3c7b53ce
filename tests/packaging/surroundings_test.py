#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two ranks where something usual is missing: no /dev/shm that can be written, no home.

usage: surroundings_test.py LAUNCHER PROGRAM

What needs a mount of its own is left out where the kernel gives none.
"""

import os
import subprocess
import sys

LAUNCHER, PROGRAM = sys.argv[1:3]
OWN_MOUNTS = ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--map-root-user"])
NO_SHARED_MEMORY = 'mount -t tmpfs -o ro none /dev/shm && exec "$@"'


def problem(what, *before, **environment):
    """One line if the ranks do not do their work, else None."""
    done = subprocess.run([*before, LAUNCHER, "launch", "--num-processes", "2", "--", PROGRAM], capture_output=True, text=True, check=False,
                          env={**os.environ, **environment}, timeout=60)
    if (done.returncode, done.stdout) == (0, "[2,2,4,4]\n"):
        return None
    return f"{what}: exit status {done.returncode}, expected [2,2,4,4]:\n{done.stdout}{done.stderr}"


def main():
    # Of settings and caches of the user nothing can be read or written.
    found = [problem("no home", HOME="/proc/nowhere", XDG_CACHE_HOME="/proc/nowhere/cache", XDG_CONFIG_HOME="/proc/nowhere/config")]
    inside = [*OWN_MOUNTS, "sh", "-c", NO_SHARED_MEMORY, "sh"]
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode == 0:
        found.append(problem("no /dev/shm", *inside))
    else:
        print("skipped: /dev/shm cannot be taken away here")
    failures = [line for line in found if line]
    print("\n".join(failures), end="\n" if failures else "")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
