"""New tensors: filled, random, and those of conversion.py."""

import math
from typing import Any, Callable

from .. import capi
from . import conversion, dtypes, ops
from .device import Device
from .tensor import Tensor

# conversion.py is below the class and knows the engine's tensors; these are of the class.
as_tensor: Callable[..., Tensor] = conversion.as_tensor
from_dlpack: Callable[..., Tensor] = conversion.from_dlpack
tensor: Callable[..., Tensor] = conversion.tensor


def _sizes(shape):
    return list(shape[0]) if len(shape) == 1 and isinstance(shape[0], (list, tuple)) else list(shape)


def full(shape: Any, number: float, dtype: Any = None, device: Any = "cpu") -> Tensor:
    """All elements equal; without a dtype that of the number: bool, int64 or float32."""
    dtype = dtypes.PYTHON_TYPES.get(type(number), "float32") if dtype is None else dtype
    return capi.accel_tensor_full(list(shape), float(number), dtypes.dtype(dtype).number, Device(device))


def zeros(*shape: Any, dtype: Any = "float32", device: Any = "cpu") -> Tensor:
    return full(_sizes(shape), 0, dtype, device)


def ones(*shape: Any, dtype: Any = "float32", device: Any = "cpu") -> Tensor:
    return full(_sizes(shape), 1, dtype, device)


def empty(*shape: Any, dtype: Any = "float32", device: Any = "cpu") -> Tensor:
    """Elements that are not initialised."""
    return capi.accel_tensor_empty(_sizes(shape), dtypes.dtype(dtype).number, Device(device))


def randn(*shape: Any, dtype: Any = "float32", device: Any = "cpu") -> Tensor:
    """From the standard normal distribution."""
    return capi.accel_tensor_randn(_sizes(shape), dtypes.dtype(dtype).number, Device(device))


def rand(*shape: Any, dtype: Any = "float32", device: Any = "cpu") -> Tensor:
    """Evenly from [0, 1)."""
    return ops.rand(_sizes(shape), dtype=dtypes.dtype(dtype), device=str(device))


def randint(low: int, high: int, shape: Any, device: Any = "cpu") -> Tensor:
    """Integers of [low, high)."""
    return capi.accel_tensor_randint(low, high, list(shape)).to(device)


def arange(start: Any, end: Any = None, step: Any = 1, dtype: Any = None, device: Any = "cpu") -> Tensor:
    """start, start + step, ... below end."""
    start, end = (0, start) if end is None else (start, end)
    whole = all(isinstance(number, int) for number in (start, end, step))
    count = max(0, math.ceil((end - start) / step))
    made = tensor([start + step * place for place in range(count)], dtype or ("int64" if whole else "float32")) if count < 64 else \
        ops.arange(start, end, step, dtype=dtypes.dtype(dtype or ("int64" if whole else "float32")))
    return made.to(device)
