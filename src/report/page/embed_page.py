#!/usr/bin/env python3
"""Writes the parts of the page as a C++ source, with the hashes by which a Content-Security-Policy allows them.

usage: embed_page.py OUTPUT page.html page.css SCRIPT.js...
"""

import base64
import hashlib
import pathlib
import sys

LONGEST_LITERAL = 8000  # compilers must accept 65536 characters


def literal(text):
    """The text as raw string literals, which the compiler joins."""
    pieces = [text[i:i + LONGEST_LITERAL] for i in range(0, len(text), LONGEST_LITERAL)]
    return "\n".join(f'    R"__part__({piece})__part__"' for piece in pieces)


def main():
    output, html, style, *scripts = map(pathlib.Path, sys.argv[1:])
    parts = {"html": html.read_text(), "style": style.read_text(),
             "script": '"use strict";\n' + "".join(script.read_text() for script in scripts)}
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
