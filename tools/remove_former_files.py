#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Removes the Python files of a build folder whose sources are gone: they would be imported in place of packages of the same name.

usage: remove_former_files.py SOURCE_FOLDER BUILD_FOLDER [GENERATED_NAME ...]
"""

import pathlib
import sys


def main():
    source, build = map(pathlib.Path, sys.argv[1:3])
    for file in sorted(build.rglob("*.py")):
        name = file.relative_to(build)
        if name.as_posix() not in sys.argv[3:] and not (source / name).exists():
            file.unlink()


if __name__ == "__main__":
    main()
