#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a text as a C++ source: usage: embed_text.py OUTPUT INPUT HEADER FUNCTION."""

import pathlib
import sys


def main():
    output, text, header, function = sys.argv[1:]
    lines = pathlib.Path(text).read_text(encoding="utf-8").splitlines()
    literals = "\n".join(f'         R"__line__({line})__line__" "\\n"' for line in lines)
    pathlib.Path(output).write_text(f'#include "{header}"\n\nnamespace accel::program {{\n\nconst char* {function}() {{\n  return (\n{literals});\n}}\n\n'
                                    "}  // namespace accel::program\n", encoding="utf-8")


if __name__ == "__main__":
    main()
