#!/usr/bin/env python3
"""The pages of docs/parity have a line for each feature of the reference that is not the same here, under its name, in the order of the
rows; and none says that something is not in C which the header has under that name.

usage: parity_rows_test.py SOURCE_ROOT REFERENCE_ROWS PAGE...
"""

import importlib.util
import pathlib
import re
import sys

ABSENT = r"\bNot in (?:C|this version)\b"  # of the feature as a whole; "not in this version" in a sentence is of a part


def denied(migration, lines):
    """Lines that deny what the header has."""
    references = migration.references()
    return [f"{row}: says {absent[0]!r}, but {', '.join(has)} of the header are {name} by their @accelerate"
            for row, name, text in lines if (absent := re.search(ABSENT, text)) and (has := migration.functions(name, references))]


def main(root, rows_path, *page_paths):
    specification = importlib.util.spec_from_file_location("migration_page", pathlib.Path(root) / "tools" / "migration_page.py")
    migration = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(migration)
    with open(rows_path, encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file if not line.startswith("#")]
    lines = []
    for path in page_paths:
        with open(path, encoding="utf-8") as file:
            lines += re.findall(r"^\| ([A-Q]\d+[a-z]?) \| (.*?) \| (.*) \|$", file.read(), re.MULTILINE)
    wrong = [f"{row}: the state is {state!r}; expected same or differs" for row, state, _ in rows if state not in ("same", "differs")]
    expected = [(row, name) for row, state, name in rows if state == "differs"]
    found = [(row, name) for row, name, _ in lines]
    wrong += [f"{row} {name}: differs, and has no line" for row, name in expected if (row, name) not in found]
    wrong += [f"{row} {name}: is no row that differs in {rows_path}" for row, name in found if (row, name) not in expected]
    wrong += [f"{row}: says nothing" for row, _, text in lines if not text.strip()]
    wrong += denied(migration, lines)
    known = {row for row, _, _ in rows}
    wrong += [f"{row}: refers to {other}, which is no row" for row, _, text in lines
              for other in re.findall(r"(?<![`\w])([A-Q]\d+[a-z]?)\b", text) if other not in known]
    if not wrong and found != expected:
        wrong.append(f"the lines are not in the order of {rows_path}, or stand there twice")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
