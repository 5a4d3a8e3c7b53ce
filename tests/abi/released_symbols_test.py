#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the library with the symbols of releases that have the same ABI, by abidiff.

usage: released_symbols_test.py SOURCE_ROOT LIBRARY

tools/api_lock.py stores them at a release as api/lock/*.abi. 77: nothing of this ABI was released, or there is no abidiff
(Debian: abigail-tools).
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

# Bits of abidiff's result: wrong usage and other failures, and changes that programs do not survive.
FAILED = 1 | 2
INCOMPATIBLE = 8


def main():
    if len(sys.argv) != 3:
        print("usage: released_symbols_test.py SOURCE_ROOT LIBRARY", file=sys.stderr)
        return 2
    root, library = pathlib.Path(sys.argv[1]), sys.argv[2]
    sys.path.insert(0, str(root / "tools"))
    import api_lock
    current = api_lock.numbers(json.loads((root / "api/accel.json").read_text())["version"])
    releases = [file for file in sorted((root / "api/lock").glob("*.abi"))
                if api_lock.same_abi(api_lock.numbers(file.stem), current)]
    if not releases or shutil.which("abidiff") is None:
        print("skipped: " + ("abidiff is not installed" if releases else "no release has this ABI yet"))
        return 77
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        now = api_lock.stripped(library, folder)
        for release in releases:
            result = subprocess.run(["abidiff", "--no-added-syms", release, now], capture_output=True, text=True,
                                    check=False)
            if result.returncode & (FAILED | INCOMPATIBLE):
                failed = True
                print(f"{library} does not have all that {release.name} has:\n{result.stdout}{result.stderr}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
