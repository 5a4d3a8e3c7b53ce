# SPDX-License-Identifier: Apache-2.0
"""New tensors: numbers, lists and the memory of others (the buffer protocol, DLPack), filled ones, random ones."""

import array
import math
from typing import Any

from .. import capi
from . import dtypes
from .device import CPU, Device
from .tensor_type import is_tensor

_stack = capi.accel_op_find("aten::stack", "")
_rand = capi.accel_op_find("aten::rand", "")
_arange = capi.accel_op_find("aten::arange", "start_step")


def tensor(data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> capi.accel_tensor:
    """A new tensor with a copy of numbers, nested lists, or what as_tensor() takes."""
    made = _of_sequence(data, dtype) if isinstance(data, (list, tuple)) else as_tensor(data, dtype)
    if not isinstance(data, (list, tuple, int, float)):
        made = made.detach().clone()
    made = made.to(dtype=dtype, device=device)
    return made.requires_grad_() if requires_grad else made


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> capi.accel_tensor:
    """A tensor over the memory of `data` where that is possible: what has `__dlpack__` (torch, JAX, CuPy, NumPy) or the buffer
    protocol (NumPy, array, memoryview). Numbers, lists and memory that cannot be written to are copied. Arrays of JAX are shared, too: do
    not write to them."""
    if is_tensor(data):
        made = data
    elif isinstance(data, (bool, int, float)):
        made = capi.accel_tensor_full([], float(data), dtypes.dtype(dtype or dtypes.PYTHON_TYPES[type(data)]).number, CPU)
    elif isinstance(data, (list, tuple)):
        made = _of_sequence(data, dtype)
    else:
        made = _of_memory(data)
    return made if dtype is None and device is None else made.to(dtype=dtype, device=device)


def _of_memory(data):
    view = None
    try:
        view = memoryview(data)
    except (TypeError, BufferError, ValueError):
        if not hasattr(data, "__dlpack__"):
            raise TypeError(f"{type(data).__name__} is not a tensor: expected numbers, lists, or an object with __dlpack__ or the buffer "
                            "protocol") from None
    if view is None:
        return from_dlpack(data)
    dtype = dtypes.FORMATS.get(view.format.lstrip("@=<"))
    if dtype is None:
        raise TypeError(f"elements of the format {view.format!r} are not a dtype")
    number = dtypes.dtype(dtype).number
    if view.readonly and hasattr(data, "__dlpack__"):
        try:
            return from_dlpack(data)  # of JAX, say, which is only immutable by its own rules
        except BufferError:
            pass
    if view.readonly or any(step < 0 for step in view.strides or ()):
        return capi.accel_tensor_from_data(view if view.c_contiguous else view.tobytes(), list(view.shape), number)
    return capi.accel_tensor_from_blob(data, number)


def from_dlpack(data: Any) -> capi.accel_tensor:
    """The tensor of another library, without a copy."""
    if not hasattr(data, "__dlpack__"):
        raise TypeError(f"{type(data).__name__} has no __dlpack__")
    try:
        return capi.accel_tensor_from_dlpack(data.__dlpack__(max_version=(1, 0)))
    except (TypeError, ValueError, AttributeError):  # a library from before version 1
        return capi.accel_tensor_from_dlpack_unversioned(data.__dlpack__())


def _of_sequence(data, dtype):
    numbers, shape = [], []
    _flatten(data, 0, shape, numbers)
    if numbers and (is_tensor(numbers[0]) or hasattr(numbers[0], "__dlpack__")):
        parts = [as_tensor(part) for part in numbers]
        return capi.accel_op_call(_stack, (parts, 0))[0].reshape([*shape, *parts[0].shape])
    kinds = {type(number) for number in numbers}
    if kinds - {bool, int, float}:
        raise TypeError(f"{(kinds - {bool, int, float}).pop().__name__} in a list that is to become a tensor; expected numbers")
    code, plain = ("b", "bool") if kinds == {bool} else ("q", "int64") if kinds <= {bool, int} and kinds else ("d", "float64")
    if code == "d" and dtype is None:
        code, plain = "f", "float32"
    made = capi.accel_tensor_from_data(array.array(code, numbers), shape, dtypes.dtype(plain).number)
    return made if dtype is None else made.to(dtype)


def _flatten(data, depth, shape, numbers):
    if not isinstance(data, (list, tuple)):
        if depth != len(shape):
            raise ValueError("the lists of a tensor must be equally deep")
        is_scalar = type(data) not in (bool, int, float) and not is_tensor(data) and getattr(data, "shape", None) == ()
        numbers.append(data.item() if is_scalar else data)  # of NumPy
        return
    if depth == len(shape):
        if numbers:
            raise ValueError("the lists of a tensor must be equally deep")
        shape.append(len(data))
    elif shape[depth] != len(data):
        raise ValueError(f"the lists of a tensor must be equally long: {len(data)} beside {shape[depth]} in dimension {depth}")
    for item in data:
        _flatten(item, depth + 1, shape, numbers)


def _sizes(shape):
    return list(shape[0]) if len(shape) == 1 and isinstance(shape[0], (list, tuple)) else list(shape)


def full(shape: Any, number: float, dtype: Any = None, device: Any = "cpu") -> capi.accel_tensor:
    """All elements equal; without a dtype that of the number: bool, int64 or float32."""
    dtype = dtypes.PYTHON_TYPES.get(type(number), "float32") if dtype is None else dtype
    return capi.accel_tensor_full(list(shape), float(number), dtypes.dtype(dtype).number, Device(device))


def zeros(*shape: Any, dtype: Any = "float32", device: Any = "cpu") -> capi.accel_tensor:
    return full(_sizes(shape), 0, dtype, device)


def ones(*shape: Any, dtype: Any = "float32", device: Any = "cpu") -> capi.accel_tensor:
    return full(_sizes(shape), 1, dtype, device)


def empty(*shape: Any, dtype: Any = "float32", device: Any = "cpu") -> capi.accel_tensor:
    """Elements that are not initialised."""
    return capi.accel_tensor_empty(_sizes(shape), dtypes.dtype(dtype).number, Device(device))


def randn(*shape: Any, dtype: Any = "float32", device: Any = "cpu") -> capi.accel_tensor:
    """From the standard normal distribution."""
    return capi.accel_tensor_randn(_sizes(shape), dtypes.dtype(dtype).number, Device(device))


def rand(*shape: Any, dtype: Any = "float32", device: Any = "cpu") -> capi.accel_tensor:
    """Evenly from [0, 1)."""
    return capi.accel_op_call_kw(_rand, (_sizes(shape),), {"dtype": dtypes.dtype(dtype), "device": str(device)})[0]


def randint(low: int, high: int, shape: Any, device: Any = "cpu") -> capi.accel_tensor:
    """Integers of [low, high)."""
    return capi.accel_tensor_randint(low, high, list(shape)).to(device)


def arange(start: Any, end: Any = None, step: Any = 1, dtype: Any = None, device: Any = "cpu") -> capi.accel_tensor:
    """start, start + step, ... below end."""
    start, end = (0, start) if end is None else (start, end)
    whole = all(isinstance(number, int) for number in (start, end, step))
    count = max(0, math.ceil((end - start) / step))
    dtype = dtype or ("int64" if whole else "float32")
    made = tensor([start + step * place for place in range(count)], dtype) if count < 64 else \
        capi.accel_op_call_kw(_arange, (start, end, step), {"dtype": dtypes.dtype(dtype)})[0]
    return made.to(device)
