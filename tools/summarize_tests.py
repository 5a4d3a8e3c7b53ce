#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts test cases in Meson's testlog.json; the last line is `N passed, N failed`.

usage: summarize_tests.py TESTLOG STATUS_OF_MESON [BUILD_COST]

BUILD_COST is the build_cost.json of tools/run_ninja.py: what the latest build cost stands before the count. The cases of GoogleTest,
CMocka, unittest, Julia's Test and Go are counted one by one, any other test is one case. What did not run is named. What failed is
named with what it said, for a log of everything is often cut.
"""

import json
import pathlib
import re
import sys

import run_ninja

# GoogleTest and CMocka: "[  PASSED  ] 12 tests.". unittest: "Ran 12 tests in 0.1s", "FAILED (failures=1, skipped=2)".
BRACKETED = re.compile(r"^\[  (PASSED|FAILED)  \] (\d+) test", re.MULTILINE)
UNITTEST_RAN = re.compile(r"^Ran (\d+) tests? in ", re.MULTILINE)
UNITTEST_RESULT = re.compile(r"^(?:OK|FAILED) \((.*)\)$", re.MULTILINE)
# Julia's Test: a line of titles, "Test Summary: | Pass  Fail  Total", and below it "name | 10  1  11".
JULIA = re.compile(r"^Test Summary:[^\n|]*\|(.*)\n[^|\n]*\|(.*)$", re.MULTILINE)
# Go: "--- PASS: TestName (0.00s)".
GO = re.compile(r"^--- (PASS|FAIL|SKIP): ", re.MULTILINE)

# Where a test begins to say what failed, in the words of the frameworks, of Python and of Rust.
FAILURE = re.compile(r"Failure$|^\[  ERROR   \]|^(FAIL|ERROR): |^Traceback|Test Failed|Error During Test|--- FAIL: |panicked at|[Ee]rror:",
                     re.MULTILINE)
LINES_SHOWN, LINES_BEFORE = 25, 2


def said(entry):
    """The lines of a failed test around its first failure, or its last ones."""
    lines = (entry.get("stdout", "") + "\n" + entry.get("stderr", "")).strip().splitlines()
    first = next((i for i, line in enumerate(lines) if FAILURE.search(line)), len(lines))
    begin = max(0, min(first - LINES_BEFORE, len(lines) - LINES_SHOWN))
    return lines[begin:begin + LINES_SHOWN]


def count_cases(entry):
    """(passed, failed, skipped) of one test program."""
    output = entry.get("stdout", "") + "\n" + entry.get("stderr", "")
    passed = failed = skipped = 0
    for word, number in BRACKETED.findall(output):
        if word == "PASSED":
            passed += int(number)
        else:
            failed += int(number)
    for titles, numbers in JULIA.findall(output):
        counted = dict(zip(titles.split(), map(int, numbers.split())))
        passed += counted.get("Pass", 0)
        failed += counted.get("Fail", 0) + counted.get("Error", 0)
        skipped += counted.get("Broken", 0)
    words = GO.findall(output)
    passed, failed, skipped = passed + words.count("PASS"), failed + words.count("FAIL"), skipped + words.count("SKIP")
    for number in UNITTEST_RAN.findall(output):
        passed += int(number)
    for result in UNITTEST_RESULT.findall(output):
        for word, number in re.findall(r"(failures|errors|skipped)=(\d+)", result):
            passed -= int(number)
            if word == "skipped":
                skipped += int(number)
            else:
                failed += int(number)
    return max(passed, 0), failed, skipped


def main():
    if len(sys.argv) not in (3, 4):
        print("usage: summarize_tests.py TESTLOG STATUS_OF_MESON [BUILD_COST]", file=sys.stderr)
        return 2
    log, status = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    total_passed = total_failed = 0
    if not log.is_file():
        print(f"failed: Meson has not written {log}: nothing was run\n0 passed, 1 failed")
        return 1
    for line in log.read_text().splitlines():
        entry = json.loads(line)
        passed, failed, skipped = count_cases(entry)
        if entry["result"] == "SKIP":
            print(f"not run: {entry['name']}")
            continue
        if entry["result"] in ("OK", "EXPECTEDFAIL"):
            passed = max(passed, 0 if skipped else 1)
        else:
            print(f"failed: {entry['name']} ({entry['result'].lower()})")
            print("".join(f"  | {line}\n" for line in said(entry)), end="")
            failed = max(failed, 1)
        if skipped:
            print(f"not run: {skipped} of {entry['name']}")
        total_passed += passed
        total_failed += failed
    if status != 0 and total_failed == 0:
        print(f"failed: meson test ended with status {status}")
        total_failed = 1
    if len(sys.argv) == 4 and pathlib.Path(sys.argv[3]).is_file():
        print(run_ninja.describe(json.loads(pathlib.Path(sys.argv[3]).read_text())))
    print(f"{total_passed} passed, {total_failed} failed")
    return 1 if total_failed else 0


if __name__ == "__main__":
    sys.exit(main())
