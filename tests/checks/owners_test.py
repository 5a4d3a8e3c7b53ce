#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
""".github/CODEOWNERS names files that exist and the teams of docs/development.md, and no line of it is hidden by a later one: owners_test.py ROOT"""

import pathlib
import re
import sys

TABLE = re.compile(r"^## Owners\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def problems(root):
    described = TABLE.search((root / "docs/development.md").read_text(encoding="utf-8"))
    teams = {team for row in re.findall(r"^\| (`[^|]*`) \|", described[0] if described else "", re.MULTILINE) for team in re.findall(r"`([\w-]+)`", row)}
    if "maintainers" not in teams:
        yield "docs/development.md: the table of teams has no `maintainers`"
    lines = [line.split() for line in (root / ".github/CODEOWNERS").read_text().splitlines() if line and not line.startswith("#")]
    named = set()
    for number, (path, *owners) in enumerate(lines):
        if path != "*" and not (root / path.lstrip("/")).exists():
            yield f".github/CODEOWNERS: {path} does not exist"
        for owner in owners:
            team = owner.partition("/")[2]
            named.add(team)
            if team not in teams:
                yield f".github/CODEOWNERS: {path}: docs/development.md does not describe the team {owner}"
        for later, *_ in lines[number + 1:]:
            if later == "*" or path != "*" and path.startswith(later):
                yield f".github/CODEOWNERS: {path} is hidden by {later} below it"
    for team in sorted(teams - named):
        yield f"docs/development.md: the team {team} owns nothing in .github/CODEOWNERS"


if __name__ == "__main__":
    found = list(problems(pathlib.Path(sys.argv[1])))
    print("\n".join(found) if found else "each owner is described")
    sys.exit(1 if found else 0)
