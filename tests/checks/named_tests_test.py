#!/usr/bin/env python3
"""Each line of the tables of docs/regressions.md says what happened, and names tests that exist.

usage: named_tests_test.py SOURCE_ROOT PAGE

A test is named by its file and the function in it, `tests/engine/base_test.cpp: BaseJson.Members`; those that follow in the same line
may leave the file out.
"""

import pathlib
import re
import sys

ROW = re.compile(r"^\| (?!---)(.*) \| (.*) \|$", re.MULTILINE)
HEADING = ("what happened", "the test that keeps it away")
CODE = re.compile(r"`([^`]+)`")


def is_defined(name, text, suffix):
    """Whether the text of a file defines a function, a GoogleTest or a test set of that name."""
    if suffix == ".py":
        pattern = rf"^ *def {name}\("
    elif suffix == ".jl":
        pattern = rf'^@testset "{re.escape(name)}" '
    elif "." in name:
        pattern = rf"^TEST(?:_F|_P)?\({name.replace('.', ', ')}\)"
    else:
        pattern = rf"^(?:static )?[a-z]\w*[ *]+{name}\([^;]*\{{$"
    return re.search(pattern, text, re.MULTILINE) is not None


def problems(root, page):
    rows = [row for row in ROW.findall(page.read_text(encoding="utf-8")) if row != HEADING]
    if not rows:
        yield f"{page.name} has no table of {' and '.join(HEADING)}"
    for what, cell in rows:
        file, names = None, CODE.findall(cell)
        if not what.strip() or not names or CODE.sub("", cell).replace(",", "").strip():
            yield f"{what}: expected what happened, and the names of tests"
        for name in names:
            if ": " in name:
                path, name = name.split(": ")
                file = root / path
            if file is None or not file.is_file():
                yield f"{what}: {name} is in {file or 'no file'}, which does not exist"
            elif not is_defined(name, file.read_text(encoding="utf-8"), file.suffix):
                yield f"{what}: {file.relative_to(root)} has no test {name}"


def main():
    if len(sys.argv) != 3:
        print("usage: named_tests_test.py SOURCE_ROOT PAGE", file=sys.stderr)
        return 2
    found = list(problems(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])))
    print("\n".join(found) if found else "every test that is named exists")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
