#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The library exports the functions of the header and nothing else.

usage: exported_symbols_test.py SOURCE_ROOT LIBRARY [ARCHIVE]

The functions of api/accel.json, the symbol map and the dynamic symbols of LIBRARY are the same, with the version of each. In
ARCHIVE every other symbol of ours is hidden, so that a library which links it exports nothing of it either; weak symbols are
those of the templates of others.
"""

import json
import pathlib
import re
import subprocess
import sys

NODE = re.compile(r"(\w+) \{(.*?)\}", re.DOTALL)
EXPORTED = re.compile(r"^\s*(\w+);$", re.MULTILINE)


def lines_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def described(root):
    """{name: version node} that the header asks for."""
    functions = json.loads((root / "api/accel.json").read_text())["functions"]
    return {function["name"]: "ACCEL_" + function["since"].replace(".", "_") for function in functions if not function["inline"]}


def mapped(root):
    """{name: version node} of the linker's map."""
    found = {}
    for node, body in NODE.findall((root / "src/capi/accel.map").read_text()):
        found.update((name, node) for name in EXPORTED.findall(body))
    return found


def exported(library):
    """{name: version node} of the library's dynamic symbols; the nodes themselves are absolute symbols."""
    found = {}
    for line in lines_of("nm", "-D", "--defined-only", library):
        _, kind, symbol = line.split()
        name, _, node = symbol.partition("@@")
        if kind != "A":
            found[name] = node
    return found


def visible(archive):
    """Strong symbols of an archive's members that are visible to whoever links it."""
    for line in lines_of("readelf", "--wide", "--symbols", archive):
        fields = line.split()
        if len(fields) == 8 and fields[4:6] == ["GLOBAL", "DEFAULT"] and fields[6] != "UND":
            yield fields[7]


def problems(root, library, archives):
    expected = described(root)
    for place, found in (("src/capi/accel.map", mapped(root)), (library, exported(library))):
        for name in sorted(expected.keys() | found.keys()):
            if expected.get(name) != found.get(name):
                yield f"{place}: {name} has the version {found.get(name)}, expected {expected.get(name)}"
    for archive in archives:
        for name in sorted(set(visible(archive)) - expected.keys()):
            yield f"{archive}: {name} is visible, and not in accel.h; compile it with -fvisibility=hidden"


def main():
    if len(sys.argv) < 3:
        print("usage: exported_symbols_test.py SOURCE_ROOT LIBRARY [ARCHIVE]", file=sys.stderr)
        return 2
    found = list(problems(pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
