#!/usr/bin/env python3
"""Runs clang-tidy with the settings of .clang-tidy over sources that need no LibTorch: those take seconds, not minutes.

usage: check_tidy.py SOURCE_ROOT FILE...

Skipped (77) when clang-tidy is not installed.
"""

import concurrent.futures
import os
import shutil
import subprocess
import sys


def main():
    if len(sys.argv) < 3:
        print("usage: check_tidy.py SOURCE_ROOT FILE...", file=sys.stderr)
        return 2
    root, files = sys.argv[1], [os.path.abspath(file) for file in sys.argv[2:]]
    program = shutil.which("clang-tidy")
    if program is None:
        print("skipped: clang-tidy is not installed")
        return 77
    # The settings themselves first: clang-tidy only warns about those that it cannot read.
    settings = subprocess.run([program, "--dump-config"], cwd=root, capture_output=True, text=True, check=False)
    if settings.returncode != 0 or settings.stderr:
        print(settings.stderr)
        return 1
    flags = ["--", "-std=c++17", "-Isrc", "-Iinclude", '-DACCEL_VERSION=""']

    def check(file):
        command = [program, "--quiet", file, *flags]
        return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        failed = [result for result in pool.map(check, files) if result.returncode != 0]
    for result in failed:
        print(result.stdout, result.stderr, sep="")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
