#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table "How many places there are" of docs/extending.md: for one example of each kind, the number of files that name it. Files that
are generated, tests, examples and pages do not count, nor does the example's own folder. A number may only become smaller.

usage: places_test.py SOURCE_ROOT
"""

import re
import sys

import pages

PAGE = "docs/extending.md"
HEADING = "## How many places there are\n"
ROW = re.compile(r"^\| (.+?) \| `(\w+)` \| (?:`([\w/]+)`|none) \| (\d+) \|$", re.MULTILINE)
FOLDERS = ("src", "include", "bindings", "tools")
NO_PLACES = {"tests", "test", "examples", "gpu", "target", "__pycache__", "node_modules"}
SOURCES = {".cpp", ".hpp", ".c", ".h", ".py", ".pyi", ".rs", ".jl", ".go", ".i", ".in", ".txt", ".build"}


def sources(root):
    """{path: text} of what is written by hand."""
    generated = {line.split()[0] for line in (root / ".gitattributes").read_text().splitlines() if not line.startswith("#")}
    found = {}
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            name = file.relative_to(root).as_posix()
            if file.suffix in SOURCES and file.is_file() and name not in generated and not NO_PLACES & set(file.parts):
                found[name] = file.read_text(encoding="utf-8")
    return found


def problems(root):
    _, found, section = (root / PAGE).read_text(encoding="utf-8").partition(HEADING)
    rows = ROW.findall(section.partition("\n## ")[0])
    if not found or len(rows) < 8:
        yield f"{PAGE} has {len(rows)} rows below '{HEADING.strip()}'; expected at least 8"
    texts = sources(root)
    for kind, example, own, number in rows:
        word = re.compile(r"(?:(?<![A-Za-z])|(?<=\bk))" + example.replace("_", "_?"), re.IGNORECASE)
        named = [name for name, text in texts.items() if word.search(text) or word.search(name)]
        elsewhere = [name for name in named if not own or not name.startswith(own + "/")]
        if own and len(named) == len(elsewhere):
            yield f"{PAGE}: {kind}: nothing in {own} names {example}; expected its own folder"
        if len(elsewhere) > int(number):
            yield f"{PAGE}: {kind}: {example} is in {len(elsewhere)} files, expected {number}: {', '.join(elsewhere)}"
        elif len(elsewhere) < int(number):
            yield f"{PAGE}: {kind}: {example} is in {len(elsewhere)} files only; lower the number"


if __name__ == "__main__":
    sys.exit(pages.report(problems, "each kind has as many places as the page says"))
