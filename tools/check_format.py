#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that C and C++ sources are formatted as .clang-format says; with --fix it formats them.

usage: check_format.py SOURCE_ROOT [--fix]

Releases of clang-format differ in what they make of the same settings, so one is pinned; without it nothing is checked
(77: skipped).
"""

import pathlib
import re
import shutil
import subprocess
import sys

RELEASE = 14
FOLDERS = ("src", "tests", "examples", "bench", "bindings")
# Laid out by hand, as a manual is.
BY_HAND = "accel.h"
GENERATED = "generated"


def clang_format():
    """The pinned release, or None."""
    for name in (f"clang-format-{RELEASE}", "clang-format"):
        path = shutil.which(name)
        if path is None:
            continue
        version = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
        found = re.search(r"version (\d+)\.", version)
        if found and int(found.group(1)) == RELEASE:
            return path
    return None


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--fix"]):
        print("usage: check_format.py SOURCE_ROOT [--fix]", file=sys.stderr)
        return 2
    program = clang_format()
    if program is None:
        print(f"skipped: clang-format {RELEASE} is not installed")
        return 77
    root = pathlib.Path(sys.argv[1]).resolve()
    files = [file for folder in FOLDERS for file in sorted((root / folder).rglob("*"))
             if file.suffix in (".c", ".h", ".cpp", ".hpp") and file.name != BY_HAND and GENERATED not in file.parts]
    if not files:
        return 0
    if sys.argv[2:]:
        return subprocess.run([program, "-i", *files], check=False).returncode
    result = subprocess.run([program, "--dry-run", "-Werror", *files], stderr=subprocess.PIPE, text=True, check=False)
    places = re.findall(r"^(.*?):\d+:\d+: error:", result.stderr, re.MULTILINE)
    for file in sorted(set(places)):
        print(f"{pathlib.Path(file).relative_to(root)}: {places.count(file)} places; run tools/check_format.py . --fix")
    if result.returncode != 0 and not places:
        print(result.stderr)
    return 1 if result.returncode != 0 else 0


if __name__ == "__main__":
    sys.exit(main())
