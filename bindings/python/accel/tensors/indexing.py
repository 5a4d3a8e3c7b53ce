# SPDX-License-Identifier: Apache-2.0
"""Parts of tensors: `x[1:, None, ..., mask]`, as in NumPy and torch."""

import operator

from .. import capi
from .creation import as_tensor
from .tensor_type import is_tensor

_select = capi.accel_op_find("aten::select", "int")
_slice = capi.accel_op_find("aten::slice", "Tensor")
_unsqueeze = capi.accel_op_find("aten::unsqueeze", "")
_index = capi.accel_op_find("aten::index", "Tensor")
_index_put = capi.accel_op_find("aten::index_put_", "")
_copy = capi.accel_op_find("aten::copy_", "")


def get(tensor, index):
    """The part that an index says; a view unless tensors or lists are in the index."""
    if type(index) is int:
        if tensor.ndim and not -tensor.shape[0] <= index < tensor.shape[0]:
            raise IndexError(f"index {index} of a dimension of {tensor.shape[0]} elements")
        return capi.accel_op_call(_select, (tensor, 0, index))[0]
    view, advanced = _view(tensor, index)
    return capi.accel_op_call(_index, (view, advanced))[0] if advanced else view


def put(tensor, index, value):
    """Writes into the part that an index says."""
    view, advanced = _view(tensor, index)
    source = as_tensor(value).to(dtype=tensor.dtype, device=tensor.device)
    capi.accel_op_call(*((_index_put, (view, advanced, source)) if advanced else (_copy, (view, source))))


def _view(tensor, index):
    """The view that the plain parts of an index make, and the tensors of the others for each of its dimensions."""
    parts = list(index) if isinstance(index, tuple) else [index]
    if any(part is Ellipsis for part in parts):
        place = next(i for i, part in enumerate(parts) if part is Ellipsis)
        used = sum(_dimensions(part) for part in parts if part is not Ellipsis)
        parts[place:place + 1] = [slice(None)] * (tensor.ndim - used)
    if sum(map(_dimensions, parts)) > tensor.ndim:
        raise IndexError(f"{sum(map(_dimensions, parts))} indices for a tensor of {tensor.ndim} dimensions")
    dim, advanced = 0, []
    for part in parts:
        if part is None:
            tensor = capi.accel_op_call(_unsqueeze, (tensor, dim))[0]
        elif isinstance(part, slice):
            if (part.step or 1) < 1:
                raise ValueError("steps of slices must be above 0; use flip()")
            if part != slice(None):
                tensor = capi.accel_op_call(_slice, (tensor, dim, part.start, part.stop, part.step or 1))[0]
        elif isinstance(part, (list, range)) or is_tensor(part) and (part.ndim or part.dtype == "bool"):
            advanced += [None] * (dim - len(advanced)) + [_as_index(part)]
            dim += _dimensions(part) - 1
        else:
            number = operator.index(part)  # a TypeError for what is not an index
            if not -tensor.shape[dim] <= number < tensor.shape[dim]:
                raise IndexError(f"index {number} of dimension {dim}, which has {tensor.shape[dim]} elements")
            tensor = capi.accel_op_call(_select, (tensor, dim, number))[0]
            continue
        dim += 1
    return tensor, advanced


def _dimensions(part):
    return 0 if part is None else part.ndim if is_tensor(part) and part.dtype == "bool" else 1


def _as_index(part):
    return as_tensor(list(part)) if isinstance(part, (list, range)) else part
