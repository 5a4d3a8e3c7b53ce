#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of promises of docs/testing.md has each test of this build in one row: those of every run in its second column, those of the
suites `toolchains` and `thorough` in its third. No row proves its promise in `tools/test.sh --all` only.

usage: promises_test.py SOURCE_ROOT BUILD_ROOT

A cell names suites, `engine`, and tests, `engine/conformance` or `docs/page_*`. A test belongs to the row that names it, or else to that of its
suite.
"""

import collections
import fnmatch
import json
import pathlib
import re
import sys

PAGE = "docs/testing.md"
HEADING = "## What each test proves\n"
NOT_OF_EVERY_RUN = {"toolchains", "thorough"}
ROW = re.compile(r"^\| (?!promise |---)(.+?) \|(.*?)\|(.*?)\|$", re.MULTILINE)
NAMES = re.compile(r"`([^`]+)`")


def tests_of(build):
    """{"suite/name" and so on for each suite: whether every run has it}, a list of pairs."""
    found = []
    for test in json.loads((build / "meson-info/intro-tests.json").read_text(encoding="utf-8")):
        suites = [suite.rpartition(":")[2] for suite in test["suite"]]
        found.append(([f"{suite}/{test['name']}" for suite in suites if suite not in NOT_OF_EVERY_RUN],
                      NOT_OF_EVERY_RUN.isdisjoint(suites)))
    return found


def is_named(pattern, paths):
    return any(fnmatch.fnmatchcase(path, pattern if "/" in pattern else f"{pattern}/*") for path in paths)


def problems(root, tests):
    page = (root / PAGE).read_text(encoding="utf-8")
    rows = ROW.findall(page.partition(HEADING)[2].partition("\n## ")[0])
    # A binding or a benchmark that this build has not is known by what Meson reads.
    described = "".join(file.read_text(encoding="utf-8") for folder in ("tests", "bindings", "examples") for file in (root / folder).rglob("meson.build"))
    promises = collections.defaultdict(list)  # {(pattern, whether of every run): promises}
    for promise, every_run, in_all in rows:
        if not NAMES.findall(every_run):
            yield f"{promise}: expected a test of every run"
        for cell, is_of_every_run in ((every_run, True), (in_all, False)):
            for pattern in NAMES.findall(cell):
                promises[pattern, is_of_every_run].append(promise)
                if not any(is_named(pattern, paths) and of_every_run == is_of_every_run for paths, of_every_run in tests) and \
                        f"'{pattern.rpartition('/')[2]}'" not in described:
                    yield f"{promise}: {pattern} is no test {'of every run' if is_of_every_run else 'of the suites toolchains and thorough'}"
    for (pattern, _), named in promises.items():
        if len(named) > 1:
            yield f"{pattern} is in {len(named)} rows: {'; '.join(named)}"
    for paths, is_of_every_run in tests:
        fitting = [pattern for pattern, of_every_run in promises if of_every_run == is_of_every_run and is_named(pattern, paths)]
        own = [pattern for pattern in fitting if "/" in pattern]
        if not fitting:
            yield f"{paths[0]} is in no row; expected it in the {'second' if is_of_every_run else 'third'} column of one"
        elif len(own) > 1:
            yield f"{paths[0]} is in the rows of {' and '.join(own)}; expected one"


def main():
    if len(sys.argv) != 3:
        print("usage: promises_test.py SOURCE_ROOT BUILD_ROOT", file=sys.stderr)
        return 2
    root, build = map(pathlib.Path, sys.argv[1:])
    tests = tests_of(build)
    found = [f"{PAGE}: {problem}" for problem in problems(root, tests)]
    print("\n".join(found) if found else f"each of {len(tests)} tests has its row")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
