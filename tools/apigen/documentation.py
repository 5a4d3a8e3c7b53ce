# SPDX-License-Identifier: Apache-2.0
"""Reads the comment in front of a declaration: a summary, a description, and tags."""

import re

TAG = re.compile(r"(?=@(?:param|return|threads|accelerate)\b)")
ARRAY = re.compile(r"^\[(\w+)\]\s*")


def plain(comment):
    """The text of a C comment as one line, without its frame."""
    text = re.sub(r"^/\*+|\*/$", "", comment.strip())
    return " ".join(re.sub(r"(?m)^\s*\*", " ", text).split())


def read(comment):
    """{summary, description, parameters: {name: text}, lengths: {name: count}, returns, threads, waits, reference}."""
    head, *tags = TAG.split(plain(comment or ""))
    summary, _, description = head.strip().partition(". ")
    found = {"summary": summary + ("." if description else ""), "description": description, "parameters": {},
             "lengths": {}, "returns": "", "threads": "", "waits": False, "reference": ""}
    for tag in tags:
        name, _, text = tag.strip()[1:].partition(" ")
        if name == "param":
            names, _, meaning = text.partition(" ")
            length = ARRAY.match(meaning)
            for parameter in names.split(","):
                found["parameters"][parameter] = ARRAY.sub("", meaning)
                if length:
                    found["lengths"][parameter] = length.group(1)
        elif name == "return":
            found["returns"] = text
        elif name == "threads":
            words = [word.strip() for word in text.split(",")]
            found["threads"], found["waits"] = words[0], "waits" in words[1:]
        else:
            found["reference"] = text
    return found


def statuses(text, names):
    """The statuses that a @return text names, in the order of the header; `names` are all ACCEL_ statuses."""
    words = set(re.findall(r"\b[A-Z][A-Z_]+\b", text))
    return [name for name in names if name in words or name.removeprefix("ACCEL_ERROR_") in words]
