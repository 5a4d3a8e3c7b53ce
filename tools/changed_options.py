#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tells whether options would change a configured build folder: exit status 1 if all of them are as they are given.

usage: changed_options.py FOLDER -Doption=value ...

`meson configure` configures anew even for values that the options have.
"""

import json
import pathlib
import sys


def as_text(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, list) else str(value)


def main():
    folder, arguments = pathlib.Path(sys.argv[1]), sys.argv[2:]
    try:
        known = {option["name"]: as_text(option["value"])
                 for option in json.loads((folder / "meson-info" / "intro-buildoptions.json").read_text())}
    except (OSError, ValueError):
        return 0
    for argument in arguments:
        name, separator, value = argument[2:].partition("=")
        if not (argument.startswith("-D") and separator and known.get(name) == value):
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
