#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every GoogleTest suite of a program runs in exactly one of the tests that are registered for it, and every source is built.

usage: registered_suites_test.py PROGRAM FOLDER NAME=FILTER...

NAME is a registered test, whose source is FOLDER/NAME_test.cpp and whose suites match FILTER. A suite that no filter matches
would never run, and nobody would notice.
"""

import fnmatch
import pathlib
import subprocess
import sys


def suites_of(program):
    listing = subprocess.run([program, "--gtest_list_tests"], capture_output=True, text=True, check=True).stdout
    names = [line.split("#")[0].strip() for line in listing.splitlines() if not line.startswith(" ")]
    return [name for name in names if name.endswith(".")]


def matches(suite, pattern):
    """Whether tests of the suite, written "Suite.", pass the filter: patterns that a colon separates."""
    return any(fnmatch.fnmatchcase(suite, part) for part in pattern.split(":"))


def problems(program, folder, filters):
    suites = suites_of(program)
    if not suites:
        yield f"{program} lists no test suite"
    for suite in suites:
        names = [name for name, pattern in filters.items() if matches(suite, pattern)]
        if not names:
            yield f"the suite {suite[:-1]} is in no registered test; add its prefix in {folder}/meson.build"
        if len(names) > 1:
            yield f"the suite {suite[:-1]} runs in {' and in '.join(names)}; give it another prefix"
    for source in sorted(pathlib.Path(folder).glob("*_test.cpp")):
        if source.name.removesuffix("_test.cpp") not in filters:
            yield f"{source.name} is not registered in {folder}/meson.build, so it is not built"
    for name, pattern in filters.items():
        if not any(matches(suite, pattern) for suite in suites):
            yield f"no suite matches {pattern}, the filter of {name}: this test would run nothing"


def main():
    if len(sys.argv) < 4:
        print("usage: registered_suites_test.py PROGRAM FOLDER NAME=FILTER...", file=sys.stderr)
        return 2
    found = list(problems(sys.argv[1], sys.argv[2], dict(argument.split("=", 1) for argument in sys.argv[3:])))
    print("\n".join(found) if found else "every suite is registered")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
