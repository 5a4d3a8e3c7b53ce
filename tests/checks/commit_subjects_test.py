# SPDX-License-Identifier: Apache-2.0
"""The subjects of the last 50 commits: at most 72 letters, a capital letter first, no period at the end.

usage: commit_subjects_test.py SOURCE_ROOT. 77: not a git repository, as in an archive of the sources. Where the history is
shallow, as in most clones of CI, the commits that are there are checked. Merges are made by git and left out.
"""

import pathlib
import subprocess
import sys

COMMITS = 50
MOST_LETTERS = 72


def git(root, *arguments):
    """What git prints; None if it fails, or is missing."""
    try:
        result = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, encoding="utf-8", errors="replace", check=False)
    except FileNotFoundError:
        return None
    return result.stdout if result.returncode == 0 else None


def problems(subject):
    if len(subject) > MOST_LETTERS:
        yield f"has {len(subject)} letters, expected at most {MOST_LETTERS}"
    if subject.endswith("."):
        yield "ends with a period"
    if not subject[:1].isupper():
        yield f"begins with '{subject[:1]}', expected a capital letter"


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    top = git(root, "rev-parse", "--show-toplevel")
    if top is None or pathlib.Path(top.strip()) != root:
        print("skipped: the sources are not the folder of a git repository")
        return 77
    log = git(root, "log", f"-{COMMITS}", "--no-merges", "--format=%h %s")
    if not log:
        print("skipped: the repository has no commits")
        return 77
    commits = [line.partition(" ") for line in log.splitlines()]
    found = [f"{number}: '{subject}' {problem}" for number, _, subject in commits for problem in problems(subject)]
    print("\n".join(found) if found else f"the subjects of the last {len(commits)} commits hold the rules")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
