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
    parts = {"Html": html.read_text(), "Style": style.read_text(),
             "Script": '"use strict";\n' + "".join(script.read_text() for script in scripts)}
    source = '#include "report/page_parts.hpp"\n\nnamespace accel::report {\n\n'
    for name, text in parts.items():
        if name == "Script" and "</script" in text.lower():
            sys.exit("a script holds '</script', which would end it")
        source += f"constexpr std::string_view kPage{name} =\n{literal(text)};\n"
    for name in ("Style", "Script"):
        digest = base64.b64encode(hashlib.sha256(parts[name].encode()).digest()).decode()
        source += f'constexpr std::string_view kPage{name}Hash = "sha256-{digest}";\n'
    output.write_text(source + "\n}  // namespace accel::report\n")


if __name__ == "__main__":
    main()
