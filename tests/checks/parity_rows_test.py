#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pages of docs/parity have a line for each feature of Accelerate that is not the same here, under its name, in the order of the
rows; and none says that something is not in C which the header has under that name. A feature that is the same has no line, and names
tests that show it. The tests that are named, there and behind "Test:" in a line, exist.

usage: parity_rows_test.py SOURCE_ROOT REFERENCE_ROWS PAGE...
"""

import pathlib
import re
import sys

import defined_tests

ABSENT = r"\bNot in (?:C|this version)\b"  # of the feature as a whole; "not in this version" in a sentence is of a part
TESTS = r"Test: ((?:`[^`]+`(?:, )?)+)"  # of a line: suites, or tests without their files
SOURCES = ("tests/**/*_test.cpp", "tests/**/*.c", "tests/**/*_test.py", "bindings/python/tests/test_*.py")


def denied(migration, lines):
    """Lines that deny what the header has."""
    references = migration.references()
    return [f"{row}: says {absent[0]!r}, but {', '.join(has)} of the header are {name} by their @accelerate"
            for row, name, text in lines if (absent := re.search(ABSENT, text)) and (has := migration.functions(name, references))]


def unproven(root, rows):
    """Rows that are the same without tests that show it."""
    for row, _, _, tests in rows:
        for test in tests.split(", "):
            path, _, name = test.partition(": ")
            file = root / path
            if not name or not file.is_file():
                yield f"{row}: its test is {test!r}; expected FILE: NAME of one that shows that the feature is the same"
            elif not defined_tests.is_defined(name, file.read_text(encoding="utf-8"), file.suffix):
                yield f"{row}: {path} has no test {name}"


def unknown_tests(root, lines):
    """Names of tests in lines that no source has."""
    texts = {path: path.read_text(encoding="utf-8") for pattern in SOURCES for path in root.glob(pattern)}
    for row, _, text in lines:
        for name in re.findall(r"`([^`]+)`", "".join(re.findall(TESTS, text))):
            is_suite = "." not in name and not name.startswith(("test_", "run_"))
            if not any(re.search(rf"^TEST(?:_F|_P)?\({name}, ", text, re.MULTILINE) if is_suite else defined_tests.is_defined(name, text, path.suffix)
                       for path, text in texts.items()):
                yield f"{row}: no source has the test {name}"


def main(root, rows_path, *page_paths):
    root = pathlib.Path(root)
    sys.path.append(str(root / "tools"))
    import migration_page as migration
    with open(rows_path, encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file if not line.startswith("#")]
    lines = []
    for path in page_paths:
        with open(path, encoding="utf-8") as file:
            lines += re.findall(r"^\| ([A-Q]\d+[a-z]?) \| (.*?) \| (.*) \|$", file.read(), re.MULTILINE)
    wrong = [f"{row[0]}: has {row[1:]}; expected same, its name and its tests, or differs and its name" for row in rows
             if (len(row), row[1]) not in ((4, "same"), (3, "differs"))]
    if wrong:
        print("\n".join(wrong))
        return 1
    expected = [(row[0], row[2]) for row in rows if row[1] == "differs"]
    found = [(row, name) for row, name, _ in lines]
    wrong += [f"{row} {name}: differs, and has no line" for row, name in expected if (row, name) not in found]
    wrong += [f"{row} {name}: is not a row that differs in {rows_path}" for row, name in found if (row, name) not in expected]
    wrong += [f"{row}: says nothing" for row, _, text in lines if not text.strip()]
    wrong += denied(migration, lines)
    wrong += unproven(root, [row for row in rows if row[1] == "same"])
    wrong += unknown_tests(root, lines)
    known = {row[0] for row in rows}
    wrong += [f"{row}: refers to {other}, which is not a row" for row, _, text in lines
              for other in re.findall(r"(?<![`\w])([A-Q]\d+[a-z]?)\b", text) if other not in known]
    if not wrong and found != expected:
        wrong.append(f"the lines are not in the order of {rows_path}, or stand there twice")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
