# SPDX-License-Identifier: Apache-2.0
"""Element types: `accel.float32` is the text "float32" that also knows its number and size."""

import builtins
from typing import TYPE_CHECKING

from .. import capi


class DType(str):
    """The name of an element type; operators take it, and plain text, wherever they want a dtype."""

    __slots__ = ()

    @property
    def number(self):
        return _NUMBERS[self]

    @property
    def itemsize(self):
        return capi.accel_dtype_size(self.number)

    @property
    def is_floating_point(self):
        return self.startswith(("float", "bfloat"))

    @property
    def is_complex(self):
        return self.startswith("complex")

    def __repr__(self):
        return f"accel.{str(self)}"


_BY_NUMBER = {}
for _constant in dir(capi):
    if _constant.startswith("ACCEL_DTYPE_"):
        _number = getattr(capi, _constant)
        _BY_NUMBER[_number] = DType(capi.accel_dtype_name(_number))
_NUMBERS = {name: number for number, name in _BY_NUMBER.items()}
globals().update({str(dtype): dtype for dtype in _BY_NUMBER.values()})

if TYPE_CHECKING:
    bfloat16: DType
    bool: DType
    complex64: DType
    complex128: DType
    float16: DType
    float32: DType
    float64: DType
    int8: DType
    int16: DType
    int32: DType
    int64: DType
    uint8: DType

# The formats of the buffer protocol and NumPy's letters for them.
FORMATS = {"?": "bool", "b": "int8", "B": "uint8", "h": "int16", "H": "uint16", "i": "int32", "I": "uint32", "q": "int64",
           "Q": "uint64", "l": "int64", "L": "uint64", "e": "float16", "f": "float32", "d": "float64", "Zf": "complex64",
           "Zd": "complex128"}
TYPESTRINGS = {"bool": "|b1", "int8": "|i1", "uint8": "|u1", "int16": "<i2", "uint16": "<u2", "int32": "<i4", "uint32": "<u4",
               "int64": "<i8", "uint64": "<u8", "float16": "<f2", "float32": "<f4", "float64": "<f8", "complex64": "<c8",
               "complex128": "<c16"}
PYTHON_TYPES = {builtins.bool: "bool", builtins.int: "int64", builtins.float: "float32"}


def of_number(number):
    return _BY_NUMBER[number]


def dtype(name):
    """The dtype of a name, of Python's bool, int or float, of NumPy's and torch's dtypes."""
    if isinstance(name, DType):
        return name
    if name in PYTHON_TYPES:
        return _BY_NUMBER[_NUMBERS[PYTHON_TYPES[name]]]
    text = name if isinstance(name, str) else str(getattr(name, "name", name))
    return _BY_NUMBER[capi.accel_dtype_from_name(text.removeprefix("torch."))]
