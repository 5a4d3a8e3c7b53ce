"""Schemas of LibTorch's operators, and which of an operator's overloads some arguments are for.

    aten::sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor
"""

import re
from typing import NamedTuple

from . import capi
from .device import Device
from .tensor_type import is_tensor

NAMESPACES = ("aten", "accel")  # LibTorch's operators, and the engine's own

_ANNOTATION = re.compile(r"\([a-z*!|> -]+\)")  # aliases: Tensor(a!)
_SIZE = re.compile(r"\[(\d+)\]")


class Parameter(NamedTuple):
    name: str
    type: str
    default: "str | None"
    keyword_only: bool


class Overload(NamedTuple):
    name: str  # "dim_IntList"
    text: str
    parameters: tuple
    handle: object

    @property
    def positional(self):
        return [parameter for parameter in self.parameters if not parameter.keyword_only]

    @property
    def lengths(self):
        """How long the lists are that one number can stand for."""
        found = ((parameter.name, _SIZE.search(parameter.type)) for parameter in self.parameters)
        return {name: int(size.group(1)) for name, size in found if size}

    def with_lists(self, args, kwargs):
        """The same arguments, where each number that stands for a list has become one."""
        lengths = self.lengths
        if not lengths:
            return args, kwargs

        def change(name, value):
            return [value] * lengths[name] if name in lengths and isinstance(value, (int, float)) else value

        return (tuple(change(parameter.name, value) for parameter, value in zip(self.positional, args)),
                {name: change(name, value) for name, value in kwargs.items()})

    def accepts(self, args, kwargs):
        """Whether the arguments fit by their number, names and types."""
        positional, named = self.positional, {parameter.name: parameter for parameter in self.parameters}
        if len(args) > len(positional) or any(name not in named for name in kwargs):
            return False
        given = dict(zip((parameter.name for parameter in positional), args))
        if given.keys() & kwargs.keys():
            return False
        given.update(kwargs)
        return all(parameter.default is not None if parameter.name not in given else fits(given[parameter.name], parameter.type)
                   for parameter in self.parameters)


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


def parse(text, handle):
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
    return Overload(head.partition(".")[2], text, tuple(parameters), handle)


_FITS = {
    "Tensor": is_tensor,
    "Scalar": lambda value: isinstance(value, (int, float)),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": lambda value: isinstance(value, (int, float)),
    "bool": lambda value: isinstance(value, bool),
    "str": lambda value: isinstance(value, str),
    "ScalarType": lambda value: isinstance(value, str),
    "Device": lambda value: isinstance(value, (str, Device)),
}


def fits(value, kind):
    """Whether a Python object can be an argument of a schema's type."""
    if kind.endswith("?"):
        return value is None or fits(value, kind[:-1])
    if _SIZE.search(kind):  # int[2] stride: one number stands for both
        kind = _SIZE.sub("[]", kind)
        if fits(value, kind[:-2]):
            return True
    if kind.endswith("[]"):
        return isinstance(value, (list, tuple)) and all(fits(item, kind[:-2]) for item in value)
    check = _FITS.get(kind)
    return check is not None and check(value)


def overloads(name):
    """All overloads of an operator, the usual ones first: those of tensors, and those that make a new result."""
    found = []
    for namespaced in (f"{namespace}::{name}" for namespace in NAMESPACES):
        for full in capi.accel_op_list(namespaced) if not found else ():
            plain, _, overload = full.partition(".")
            if plain == namespaced:
                handle = capi.accel_op_find(plain, overload)
                found.append(parse(capi.accel_op_schema(handle), handle))
    return sorted(found, key=_order)


def _order(overload):
    types = [parameter.type for parameter in overload.parameters]
    writes = "out" in overload.name or any("(a!)" in part and " out" in part for part in overload.text.split(","))
    return writes, not any("Tensor" in kind for kind in types), overload.name not in ("", "Tensor"), -types.count("Tensor")
