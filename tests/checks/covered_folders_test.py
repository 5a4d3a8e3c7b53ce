#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/testing.md are complete: each folder of src/ has a row, with folders of tests that include its headers and
suites that exist; each suite has a row.

usage: covered_folders_test.py SOURCE_ROOT BUILD_ROOT
"""

import json
import pathlib
import re
import sys

PAGE = "docs/testing.md"
ROW = re.compile(r"^\| `(\w+)` \| (.+) \|$", re.MULTILINE)
NAMES = re.compile(r"`([\w/]+)`")
# Their tests are users of the library and of the program, and include none of their headers.
WITHOUT_INCLUDES = ("capi", "cli")
SOURCES = {".cpp", ".hpp", ".c", ".h"}


def suites_of(root, build):
    """The suites of this build, and those that other options give."""
    tests = json.loads((build / "meson-info/intro-tests.json").read_text(encoding="utf-8"))
    here = {suite.rpartition(":")[2] for test in tests for suite in test["suite"]}
    text = "".join(file.read_text(encoding="utf-8") for folder in ("tests", "bindings", "examples")
                   for file in (root / folder).rglob("meson.build"))
    return here, here | set(re.findall(r"'(\w+)'", " ".join(re.findall(r"suite: (\[[^\]]*\]|'\w+')", text))))


def includes_header_of(folder, tests):
    return any(f'#include "{folder}/' in file.read_text(encoding="utf-8") for file in tests.iterdir() if file.suffix in SOURCES)


def problems(root, build):
    here, known = suites_of(root, build)
    parts = (root / PAGE).read_text(encoding="utf-8").split("\n## ")
    folders, suites = (dict(ROW.findall(part)) for part in parts if ROW.search(part))
    for name in sorted({path.name for path in (root / "src").iterdir() if path.is_dir()} ^ folders.keys()):
        yield f"src/{name}: {'has a row, and does not exist' if name in folders else 'has no row'}"
    for name in sorted(here ^ suites.keys()):
        if name not in known or name not in suites:
            yield f"the suite {name}: {'has a row, and does not exist' if name in suites else 'has no row'}"
    for folder, cells in folders.items():
        tests, of_row = (NAMES.findall(cell) for cell in cells.split(" | "))
        yield from (f"{folder}: there is no suite {suite}" for suite in of_row if suite not in known)
        for name in tests:
            if not (root / name).is_dir():
                yield f"{folder}: {name} does not exist"
            elif folder not in WITHOUT_INCLUDES and not includes_header_of(folder, root / name):
                yield f"{folder}: no test in {name} includes a header of src/{folder}"
        if not tests or not of_row:
            yield f"{folder}: expected folders of tests, and suites"


def main():
    if len(sys.argv) != 3:
        print("usage: covered_folders_test.py SOURCE_ROOT BUILD_ROOT", file=sys.stderr)
        return 2
    found = [f"{PAGE}: {problem}" for problem in problems(*map(pathlib.Path, sys.argv[1:]))]
    print("\n".join(found) if found else "each folder of src/ and each suite has its row")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
