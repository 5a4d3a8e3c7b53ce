# SPDX-License-Identifier: Apache-2.0
"""Classes with too many members: functions and fields together, of classes and structs in headers of src/.

Functions that are deleted or defaulted, types and friends do not count.
"""

import re

MOST_MEMBERS = 30
NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|^[ \t]*#(?:\\\n|[^\n])*', re.DOTALL | re.MULTILINE)
HEAD = re.compile(r"(?<!enum )\b(?:class|struct)\s+(\w+)(?:\s+final)?\s*(?::[^;{}()]*)?\{")
ACCESS = re.compile(r"\b(?:public|protected|private)\s*:(?!:)")
NO_MEMBER = re.compile(r"\s*(?:using|friend|typedef|static_assert|enum|class|struct|template\s*<[^>]*>\s*(?:class|struct))\b")


def end_of(text, start):
    """Behind the brace that closes the one at `start`."""
    depth = 0
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return place + 1
    return len(text)


def declarations(body):
    """The text of each declaration, without what stands in braces or parentheses."""
    kept, depth = "", 0
    for place, sign in enumerate(body):
        depth -= sign in ")}"
        if depth == 0:
            kept += sign
            # A function ends with its body, a variable or a type with a semicolon.
            if sign == "}" and ")" in kept.rpartition(";")[2] and not body[place + 1:].lstrip().startswith((",", "{")):
                kept += ";"
        depth += sign in "({"
    return [part for part in ACCESS.sub("", kept).split(";") if part.strip()]


def count(declaration):
    """How many members it declares."""
    if "(" not in declaration and ")" not in declaration and NO_MEMBER.match(declaration):
        return int(bool(re.search(r"\}\s*\w+", declaration)))  # a variable of a type that is defined there
    if NO_MEMBER.match(declaration) or re.search(r"=\s*(?:delete|default)\s*$", declaration):
        return 0
    without_templates = declaration
    while (shorter := re.sub(r"<[^<>]*>", "", without_templates)) != without_templates:
        without_templates = shorter
    return 1 if ")" in declaration.partition("=")[0] else 1 + without_templates.count(",")


def classes(text):
    """(name, number of members) of each class with a body."""
    text = NO_CODE.sub(" ", text)
    for head in HEAD.finditer(text):
        body = text[head.end():end_of(text, head.end() - 1) - 1]
        yield head[1], sum(map(count, declarations(body)))


def problems(root):
    for file in sorted((root / "src").rglob("*.hpp")):
        if "generated" not in file.parts:
            for name, members in classes(file.read_text()):
                if members > MOST_MEMBERS:
                    yield f"{file.relative_to(root).as_posix()}: {name} has {members} members; expected at most {MOST_MEMBERS}: make it of parts"
