"""Sizes of memory: of an element, and in words."""

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
    units = {"GIB": 2**30, "MIB": 2**20, "KIB": 2**10, "GB": 10**9, "MB": 10**6, "KB": 10**3}
    if isinstance(size, int) and size >= 0:
        return size
    unit = next((unit for unit in units if str(size).upper().endswith(unit)), None)
    if unit is None or not str(size)[:-len(unit)].replace(".", "", 1).isdigit():
        raise ValueError(f"{size!r} is not a size: expected a number of bytes, or one with GB, MB, KB, GiB, MiB or KiB")
    return int(float(str(size)[:-len(unit)]) * units[unit]) // (8 if str(size).endswith("b") else 1)
