#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The library on a processor without AVX, emulated: two ranks compute and exchange, instead of ending by SIGILL.

usage: old_processor_test.py LAUNCHER PROGRAM

77 without qemu-x86_64 (Debian's qemu-user).
"""

import shutil
import subprocess
import sys


def main():
    if len(sys.argv) != 3:
        print("usage: old_processor_test.py LAUNCHER PROGRAM", file=sys.stderr)
        return 2
    launcher, program = sys.argv[1:]
    emulator = shutil.which("qemu-x86_64")
    if emulator is None:
        print("skipped: qemu-x86_64 is not installed")
        return 77
    # Its processor of 2008 has SSE 4.2 and nothing after it.
    done = subprocess.run([launcher, "launch", "--num-processes", "2", "--", emulator, "-cpu", "Nehalem", program],
                          capture_output=True, text=True, check=False, timeout=200)
    if (done.returncode, done.stdout) != (0, "[2,2,4,4]\n"):
        print(f"exit status {done.returncode}, expected [2,2,4,4]:\n{done.stdout}{done.stderr}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
