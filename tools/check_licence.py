#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that each source names its licence; with --fix it writes the line. Programs that users copy, in examples/, are left as they are.

usage: check_licence.py SOURCE_ROOT [--fix]
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "apigen"))
import licence

FOLDERS = ("bench", "bindings", "docs", "include", "packaging", "src", "tests", "tools")
# What builds and runs leave among the sources.
LEFT = {"examples", "node_modules", "target", "__pycache__"}


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--fix"]):
        print("usage: check_licence.py SOURCE_ROOT [--fix]", file=sys.stderr)
        return 2
    root = pathlib.Path(sys.argv[1])
    missing = 0
    for file in (file for folder in FOLDERS for file in sorted((root / folder).rglob("*"))):
        if file.suffix not in licence.LINES or LEFT.intersection(file.relative_to(root).parts) or file.is_symlink() or not file.is_file():
            continue
        text = file.read_text()
        wanted = licence.named(file, text)
        if wanted == text:
            continue
        missing += 1
        if sys.argv[2:]:
            file.write_text(wanted)
        else:
            print(f"{file.relative_to(root)}: names no licence; run tools/check_licence.py . --fix")
    return 1 if missing and not sys.argv[2:] else 0


if __name__ == "__main__":
    sys.exit(main())
