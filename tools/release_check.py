#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether the tree can be released: one version everywhere, and, with --final, its date in the changelog, its lock, and nothing left open.

usage: release_check.py SOURCE_ROOT [--final]

Prints one line for each thing that does not fit; exit status 1 if there is one.
"""

import json
import pathlib
import re
import subprocess
import sys

# Where the version is written beside the header: files, the line with it, whether each of the files must have one.
PLACES = (
    ("meson.build", r"^  version: '(.+)',$", True),
    ("pyproject.toml", r'^version = "(.+)"$', True),
    ("bindings/python/accel/__init__.py", r'^__version__ = "(.+)"$', True),
    ("bindings/julia/Project.toml", r'^version = "(.+)"$', True),
    ("bindings/rust/*/Cargo.toml", r'^version = "(.+)"$', True),
    ("bindings/rust/*/Cargo.toml", r'^(?:lib)?accel[\w-]* = \{.*path = .*version = "=?([^"]+)"', False),
    ("api/accel.json", r'^\s*"version": "(.+)",?$', True),
)
CHANGELOG = r"^## (\S+) - (.+)$"


def header_version(root):
    text = (root / "include/accel/error.h").read_text()
    return ".".join(re.search(rf"#define ACCEL_VERSION_{part} (\d+)", text)[1] for part in ("MAJOR", "MINOR", "PATCH"))


def version_problems(root, version):
    for pattern, line, required in PLACES:
        files = sorted(root.glob(pattern))
        if not files:
            yield f"{pattern}: there is no such file; expected one with the version {version}"
        for file in files:
            found = re.findall(line, file.read_text(), re.MULTILINE)
            if required and not found:
                yield f"{file.relative_to(root)} has no line with the version; expected {version}"
            yield from (f"{file.relative_to(root)} says version {other}; include/accel says {version}" for other in found if other != version)


def changelog_problems(root, version, final):
    found = dict(re.findall(CHANGELOG, (root / "CHANGELOG.md").read_text(), re.MULTILINE))
    if version not in found:
        yield f"CHANGELOG.md has no section for {version}; expected `## {version} - YYYY-MM-DD` or `- not released`"
    left = sorted(file.name for file in (root / "changes").glob("+*.md"))
    if final and left:
        yield f"changes/ has {', '.join(left)}: make them a part of CHANGELOG.md with `towncrier build --version {version}`"
    if version in found and final and not re.fullmatch(r"\d{4}-\d\d-\d\d", found[version]):
        yield f"CHANGELOG.md says `{found[version]}` for {version}; expected the date of the release"


def lock_problems(root, version):
    """A release needs the lock of its minor version, of this version, and nothing that breaks it."""
    lock = root / "api/lock" / (".".join(version.split(".")[:2]) + ".json")
    if not lock.exists():
        yield f"{lock.relative_to(root)} is missing: run `tools/release.sh --lock` and commit what it writes"
    elif json.loads(lock.read_text())["version"] != version:
        yield f"{lock.relative_to(root)} is of another version than {version}: run `tools/release.sh --lock` and commit what it writes"
    elif not lock.with_suffix(".abi").exists():
        yield f"{lock.with_suffix('.abi').relative_to(root)} is missing: run `tools/release.sh --lock` and commit what it writes"


def tree_problems(root):
    left = subprocess.run(["git", "-C", root, "status", "--porcelain"], capture_output=True, text=True, check=True).stdout.splitlines()
    if left:
        yield f"{len(left)} files are changed or new, the first is {left[0][3:]}: commit or remove them"


def problems(root, final):
    version = header_version(root)
    yield from version_problems(root, version)
    yield from changelog_problems(root, version, final)
    if final:
        yield from lock_problems(root, version)
        yield from tree_problems(root)


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--final"]):
        print("usage: release_check.py SOURCE_ROOT [--final]", file=sys.stderr)
        return 2
    found = list(problems(pathlib.Path(sys.argv[1]), bool(sys.argv[2:])))
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
