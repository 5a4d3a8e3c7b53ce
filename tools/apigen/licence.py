# SPDX-License-Identifier: Apache-2.0
"""The line by which a source names its licence (SPDX 2.3, annex E)."""
import pathlib

MARK = "SPDX-License-Identifier: Apache-2.0"
# Go takes a comment that touches the package clause for the documentation of the package.
LINES = {**dict.fromkeys((".c", ".h"), f"/* {MARK} */\n"), **dict.fromkeys((".cpp", ".hpp", ".i", ".js", ".rs"), f"// {MARK}\n"), ".go": f"// {MARK}\n\n",
         **dict.fromkeys((".jl", ".py", ".sh"), f"# {MARK}\n")}


def is_named(text):
    return MARK in text[:400]


def named(path, text):
    """The text with the line, as the first one or behind that of the interpreter."""
    line = LINES.get(pathlib.PurePath(path).suffix)
    if line is None or is_named(text) or not text.strip():
        return text
    head = text.index("\n") + 1 if text.startswith("#!") else 0
    return text[:head] + line + text[head:]
