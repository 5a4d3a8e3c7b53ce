# SPDX-License-Identifier: Apache-2.0
"""Schemas of LibTorch's operators, for documentation and signatures.

    aten::sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor
"""

import re
from typing import NamedTuple

from .. import capi

NAMESPACES = ("aten", "accel")  # LibTorch's operators, and the engine's own

_ANNOTATION = re.compile(r"\([a-z*!|> -]+\)")  # aliases: Tensor(a!)


class Parameter(NamedTuple):
    name: str
    type: str
    default: "str | None"
    keyword_only: bool


class Overload(NamedTuple):
    name: str  # "dim_IntList"
    text: str
    parameters: tuple


def _split(text):
    """Cuts at the commas that stand in no bracket or quote."""
    parts, depth, quoted, part = [], 0, False, ""
    for letter in text:
        quoted ^= letter == '"'
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0 and not quoted:
            parts.append(part.strip())
            part = ""
        else:
            part += letter
    return [*parts, part.strip()] if part.strip() else parts


def parse(text):
    """The overload that a schema describes."""
    head, rest = text.split("(", 1)
    inside = rest[:rest.rindex(" -> ")].rstrip()[:-1]
    parameters, keyword_only = [], False
    for part in _split(inside):
        if part == "*":
            keyword_only = True
            continue
        declared, _, default = part.partition("=")
        kind, _, name = declared.rpartition(" ")
        kind = _ANNOTATION.sub("", kind).replace("SymInt", "int")
        parameters.append(Parameter(name, kind, default or None, keyword_only))
    return Overload(head.partition(".")[2], text, tuple(parameters))


def overloads(name):
    """All overloads of an operator, the usual ones first: those of tensors, and those that make a new result."""
    found = []
    for namespaced in (f"{namespace}::{name}" for namespace in NAMESPACES):
        for full in capi.accel_op_list(namespaced) if not found else ():
            plain, _, overload = full.partition(".")
            if plain == namespaced:
                found.append(parse(capi.accel_op_schema(capi.accel_op_find(plain, overload))))
    return sorted(found, key=_order)


def _order(overload):
    types = [parameter.type for parameter in overload.parameters]
    writes = "out" in overload.name or any("(a!)" in part and " out" in part for part in overload.text.split(","))
    return writes, not any("Tensor" in kind for kind in types), overload.name not in ("", "Tensor"), -types.count("Tensor")
