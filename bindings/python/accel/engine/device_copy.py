"""Batches on a device, and as torch has them."""

import operator

import torch

from ..tensors.tensor_type import is_tensor
from .bridge import to_torch
from .values import again, contents_of


def to_device(value, device, non_blocking=False):
    """The value with its tensors on a device, in containers of the same classes. What is there already is not copied."""
    if isinstance(value, torch.Tensor):
        return value if value.device == device else value.to(device, non_blocking=non_blocking)
    if type(value) not in (list, tuple, dict) and callable(getattr(value, "to", None)):
        return value.to(device)
    return _map_contents(value, to_device, device, non_blocking)


def of_torch(value):
    """The value with torch's tensors in the place of the engine's."""
    return to_torch(value) if is_tensor(value) else _map_contents(value, of_torch)


def _map_contents(value, function, *arguments):
    """The value with what the function makes of each of its parts; itself where that changes nothing."""
    contents = contents_of(value)
    if contents is None:
        return value
    parts = contents.values() if isinstance(contents, dict) else contents
    mapped = [function(part, *arguments) for part in parts]
    if all(map(operator.is_, mapped, parts)):
        return value
    return again(value, dict(zip(contents, mapped)) if isinstance(contents, dict) else mapped)
