# SPDX-License-Identifier: Apache-2.0
"""Functions on every tensor of a tree, without other ranks. Trees are lists, tuples and dicts of any classes, which results have again.
The tensors may be torch's or the engine's; results are of the same kind.
"""

import copy
import dataclasses
import functools
import pickle
import types
from collections.abc import Mapping

from .. import capi
from ..engine.torch_types import is_torch_tensor as is_of_torch, torch_module
from ..engine.values import again, like, map_leaves, to_engine
from . import ops
from .creation import as_tensor, empty
from .tensor_type import is_tensor


class CannotPadNestedTensorWarning(UserWarning):
    """A nested tensor is returned as it is by pad_across_processes()."""


@dataclasses.dataclass
class TensorInformation:
    """The description of a tensor by get_data_structure(), from which initialize_tensors() makes one."""

    shape: tuple
    dtype: object


def is_torch_tensor(tensor):
    """Whether it is a tensor, of torch or of the engine."""
    return is_tensor(tensor) or is_of_torch(tensor)


def is_tensor_information(tensor_info):
    return isinstance(tensor_info, TensorInformation)


def is_namedtuple(data):
    return isinstance(data, tuple) and hasattr(data, "_fields")


def honor_type(obj, generator):
    """A list or tuple of the class of `obj`, with the items of `generator`."""
    return again(obj, list(generator))


def recursively_apply(func, data, *args, test_type=is_torch_tensor, error_on_other_type=False, **kwargs):
    """Returns the tree with func(tensor, *args, **kwargs) in the place of each tensor. Other values stay; with `error_on_other_type` they
    raise a TypeError."""
    def apply(value):
        if test_type(value):
            return func(value, *args, **kwargs)
        if error_on_other_type:
            names = [getattr(function, "__name__", function) for function in (func, test_type)]
            # Programs match these words, which are Accelerate's.
            raise TypeError(f"Unsupported types ({type(value)}) passed to `{names[0]}`. Only nested list/tuple/dicts of objects that are valid for "
                            f"`{names[1]}` should be passed.")
        return value

    return map_leaves(data, lambda _: True, apply)


def send_to_device(tensor, device, non_blocking=False, skip_keys=None):
    """Moves each tensor, and whatever else has to(), to a device. Values under the keys `skip_keys` of dicts stay where they are."""
    if hasattr(tensor, "to"):
        return _moved(tensor, device, non_blocking)
    skip_keys = (skip_keys,) if isinstance(skip_keys, str) else skip_keys or ()
    if isinstance(tensor, (list, tuple)):
        return again(tensor, [send_to_device(item, device, non_blocking, skip_keys) for item in tensor])
    if isinstance(tensor, Mapping):
        return again(tensor, {key: item if key in skip_keys else send_to_device(item, device, non_blocking, skip_keys)
                              for key, item in tensor.items()})
    return _moved(as_tensor(tensor), device, non_blocking) if hasattr(tensor, "__dlpack__") else tensor


def _moved(thing, device, non_blocking):
    try:
        return thing.to(device, non_blocking=non_blocking)
    except TypeError:  # a to() that takes nothing else
        return thing.to(device)


def convert_to_fp32(tensor):
    """float16 and bfloat16 tensors become float32; others stay."""
    return map_leaves(tensor, _is_half, lambda half: half.float())


def _is_half(value):
    dtype = getattr(value, "dtype", None)
    return dtype is not None and getattr(dtype, "is_floating_point", False) and dtype.itemsize == 2


class ConvertOutputsToFp32:
    """A forward, or a method, whose outputs in float16 and bfloat16 become float32."""

    def __init__(self, model_forward):
        self.model_forward = model_forward
        functools.update_wrapper(self, model_forward)

    def __call__(self, *args, **kwargs):
        return convert_to_fp32(self.model_forward(*args, **kwargs))

    def __get__(self, instance, _=None):  # as a function in a class
        return self if instance is None else types.MethodType(self, instance)

    def __deepcopy__(self, memo):
        return type(self)(copy.deepcopy(self.model_forward, memo))

    def __getstate__(self):
        raise pickle.PicklingError("a forward whose outputs become float32 cannot be pickled: pickle the model inside, which "
                                   "Accelerator.unwrap_model(model) returns")


def convert_outputs_to_fp32(model_forward):
    """The forward, whose outputs in float16 and bfloat16 become float32."""
    return ConvertOutputsToFp32(model_forward)


def find_batch_size(data):
    """Rows of the first tensor of the tree, which is the first thing in it."""
    first = data
    while isinstance(first, (list, tuple, Mapping)):
        if not first:
            raise ValueError(f"the batch begins with a {type(first).__name__} that is empty; expected a tensor")
        first = first[0] if isinstance(first, (list, tuple)) else next(iter(first.values()))
    if not is_torch_tensor(first):
        raise TypeError(f"the batch begins with a {type(first).__name__}; expected a tensor, or a list, tuple or dict of tensors")
    if not first.shape:
        raise IndexError("the first tensor of the batch has no dimensions; expected rows in dimension 0")
    return first.shape[0]


def ignorant_find_batch_size(data):
    """find_batch_size(), and None where no tensor comes first."""
    try:
        return find_batch_size(data)
    except (TypeError, ValueError):
        return None


def find_device(data):
    """The device of the first tensor of the tree; None where there is none."""
    if is_torch_tensor(data):
        return data.device
    parts = data.values() if isinstance(data, Mapping) else data if isinstance(data, (list, tuple)) else ()
    return next((found for found in map(find_device, parts) if found is not None), None)


def get_data_structure(data):
    """Returns the tree with a TensorInformation for each tensor."""
    return map_leaves(data, is_torch_tensor, lambda tensor: TensorInformation(tensor.shape, tensor.dtype))


def get_shape(data):
    """Returns the tree with the shape of each tensor as a list."""
    return map_leaves(data, is_torch_tensor, lambda tensor: list(tensor.shape))


def initialize_tensors(data_structure):
    """A tree of uninitialised tensors from what get_data_structure() returned."""
    return map_leaves(data_structure, is_tensor_information, _uninitialised)


def _uninitialised(information):
    torch = torch_module()
    if torch is not None and isinstance(information.dtype, torch.dtype):
        return torch.empty(*information.shape, dtype=information.dtype)
    return empty(*information.shape, dtype=information.dtype)


def listify(data):
    """Tensors and arrays become nested lists of numbers."""
    return map_leaves(data, lambda leaf: hasattr(leaf, "tolist"), lambda leaf: leaf.tolist())


def pad_input_tensors(tensor, batch_size, num_processes, dim=0):
    """Zeros behind each tensor, so that processes can share it equally. The size is the tensors' own: `batch_size` is not used."""
    return like(tensor, capi.accel_pad_input_tensors(to_engine(tensor), num_processes, dim))


def slice_tensors(data, tensor_slice, process_index=None, num_processes=None):
    """Rows of each tensor. The last two arguments are Accelerate's, and not used."""
    if tensor_slice.step not in (None, 1):
        raise ValueError("slices of trees have no step")
    return map_leaves(data, is_torch_tensor, lambda tensor: tensor[tensor_slice])


def concatenate(data, dim=0):
    """Joins trees of one structure, tensor by tensor. One tree alone is returned as it is."""
    first = data[0]
    if len(data) == 1:
        return first
    if isinstance(first, (list, tuple)):
        return again(first, [concatenate([tree[place] for tree in data], dim) for place in range(len(first))])
    if isinstance(first, Mapping):
        return again(first, {key: concatenate([tree[key] for tree in data], dim) for key in first})
    if not is_torch_tensor(first):
        raise TypeError(f"a {type(first).__name__} cannot be joined; expected tensors in lists, tuples and dicts")
    return torch_module().cat(data, dim=dim) if is_of_torch(first) else ops.cat(list(data), dim)
