#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The walks of docs/architecture.md, its sections "..., file by file": every file that a step names exists, and no step goes back to
a file of an earlier one. The returns that are left are counted here; their number may only become smaller.

usage: walks_test.py SOURCE_ROOT
"""

import re
import sys

import pages

PAGE = "docs/architecture.md"
WALKS = ("A gradient bucket", "A batch", "An option's value", "A saved training state", "A step of a program of torch")
RETURNS = {"A gradient bucket": 1}
STEP = re.compile(r"^\d+\. (.+?)(?=^\d+\. |^\S|\Z)", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"`([\w./]+\.(?:cpp|hpp|h|py))`")
# Names are paths from the root or from here, or of files beside one that the walk has named.
ROOTS = (".", "src", "bindings/python/accel")


def find(root, name, named):
    folders = [root / folder for folder in ROOTS] + [file.parent for file in named]
    return next((folder / name for folder in folders if (folder / name).is_file()), None)


def problems(root):
    text = (root / PAGE).read_text(encoding="utf-8")
    walks = dict(re.findall(r"^## ([^\n]+), file by file\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    if tuple(walks) != WALKS:
        yield f"{PAGE}: the walks are {', '.join(walks)}; expected {', '.join(WALKS)}"
    for walk, section in walks.items():
        named, returns = set(), []
        steps = STEP.findall(section)
        if len(steps) < 3:
            yield f"{PAGE}: {walk} has {len(steps)} steps; expected a list of at least 3"
        for number, step in enumerate(steps, 1):
            of_step = set()
            for name in FILE.findall(step):
                file = find(root, name, named | of_step)
                if file is None:
                    yield f"{PAGE}: {walk}, step {number}: there is no file {name}"
                else:
                    of_step.add(file.resolve())
            returns += sorted(file.name for file in of_step & named)
            named |= of_step
        if len(returns) != RETURNS.get(walk, 0):
            yield f"{PAGE}: {walk} returns to {', '.join(returns) or 'no file'}; expected {RETURNS.get(walk, 0)} returns"


if __name__ == "__main__":
    sys.exit(pages.report(problems, "every walk leads through files that exist"))
