# SPDX-License-Identifier: Apache-2.0
"""Sizes of memory: of an element, and in words."""

from .. import capi
from ..generated.enums import CustomDtype
from . import dtypes


def dtype_byte_size(dtype):
    """Bytes of an element, as they are counted in the sizes of models: a bool is a bit."""
    parts = {"bool": 1 / 8, "torch.bool": 1 / 8, CustomDtype.INT2: 1 / 4, CustomDtype.INT4: 1 / 2, CustomDtype.FP8: 1}
    name = dtype if isinstance(dtype, str) else str(dtype)
    if name in parts:
        return parts[name]
    return dtype.itemsize if hasattr(dtype, "itemsize") else dtypes.dtype(dtype).itemsize


def convert_file_size_to_int(size):
    """Bytes of 5, "5GB" or "5GiB"."""
    return size if isinstance(size, int) and size >= 0 else capi.accel_convert_file_size_to_int(str(size))
