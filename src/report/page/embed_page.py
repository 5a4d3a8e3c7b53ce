#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the parts of the page as a C++ source, with the hashes by which a Content-Security-Policy allows them.

usage: embed_page.py OUTPUT LICENSE page.html STYLE.css... SCRIPT.js...

The license is the one of uPlot, whose copies must contain it: it becomes a comment of the script.
"""

import base64
import hashlib
import pathlib
import sys

LONGEST_LITERAL = 8000  # compilers must accept 65536 characters


def literal(text):
    """The text as raw string literals, which the compiler joins."""
    chunks = [text[i:i + LONGEST_LITERAL] for i in range(0, len(text), LONGEST_LITERAL)]
    return "\n".join(f'    R"__part__({chunk})__part__"' for chunk in chunks)


def main():
    output, license_file, html, *others = map(pathlib.Path, sys.argv[1:])
    texts = {suffix: "".join(file.read_text(encoding="utf-8") for file in others if file.suffix == suffix) for suffix in (".css", ".js")}
    parts = {"html": html.read_text(encoding="utf-8"), "style": texts[".css"],
             "script": f'"use strict";\n/* uPlot:\n{license_file.read_text(encoding="utf-8").strip()}\n*/\n{texts[".js"]}'}
    if "</script" in parts["script"].lower():
        sys.exit("a script holds '</script', which would end it")
    members = [literal(text) for text in parts.values()]
    for name in ("style", "script"):
        digest = base64.b64encode(hashlib.sha256(parts[name].encode()).digest()).decode()
        members.append(f'    "sha256-{digest}"')
    output.write_text('#include "report/page_parts.hpp"\n\nnamespace accel::report {\n\nPageParts page_parts() {\n  return {\n' +
                      ",\n".join(members) + "};\n}\n\n}  // namespace accel::report\n")


if __name__ == "__main__":
    main()
