#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No object of ours runs code when it is loaded.

usage: static_constructors_test.py ARCHIVE_OR_FOLDER...

Such code runs before main(), in an order that nobody knows, also in programs that never call the library. One is allowed:
std::ios_base::Init, for which a LibTorch header that every tensor needs (torch/headeronly/util/Float8_e4m3fn.h) includes
<iostream>. A program that uses C++ has it already; it may run any number of times.
"""

import pathlib
import re
import subprocess
import sys

FILE = re.compile(r"^File: (.*)")
SECTION = re.compile(r"^Relocation section '(.*?)'")
STARTS_CODE = (".rela.init_array", ".rela.preinit_array", ".rela.ctors")
STARTUP_CODE = ".rela.text.startup"
IOSTREAM = {".bss", "__dso_handle", "__cxa_atexit", "_ZNSt8ios_base4InitC1Ev", "_ZNSt8ios_base4InitD1Ev"}


def relocations(path):
    """{(object, section): [what it refers to]} of an archive or object."""
    text = subprocess.run(["readelf", "--wide", "--relocs", path], capture_output=True, text=True, check=True).stdout
    found, name, section = {}, str(path), ""
    for line in text.splitlines():
        if FILE.match(line):
            name = FILE.match(line).group(1)
        elif SECTION.match(line):
            section = SECTION.match(line).group(1)
        elif re.match(r"[0-9a-f]{12,} ", line):
            found.setdefault((name, section), []).append(line.split()[4])
    return found


def problems(path):
    found = relocations(path)
    if not found:
        yield f"{path}: no code was found in it"
    for (name, section), targets in found.items():
        if not section.startswith(STARTS_CODE):
            continue
        used = found.get((name, STARTUP_CODE), [])
        if targets != [".text.startup"] or len(used) != len(IOSTREAM) or set(used) != IOSTREAM:
            others = [target for target in sorted(set(used) - IOSTREAM) if target[0] != "."] or targets
            yield f"{name}: code runs when it is loaded, with {', '.join(others)}; make that object when it is first used"


def main():
    if len(sys.argv) < 2:
        print("usage: static_constructors_test.py ARCHIVE_OR_FOLDER...", file=sys.stderr)
        return 2
    files = []
    for path in map(pathlib.Path, sys.argv[1:]):
        files += sorted(path.glob("*.o")) if path.is_dir() else [path]
    if not files:
        print(f"no objects in {' '.join(sys.argv[1:])}")
        return 1
    found = [problem for file in files for problem in problems(file)]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
