"""Batches on a device, and as torch has them."""

import torch

from ..tensors import Tensor
from ..values import again, contents_of
from .bridge import to_torch


def to_device(value, device, non_blocking=False):
    """The value with its tensors on a device, in containers of the same classes. What is there already is not copied."""
    def move(part):
        if isinstance(part, torch.Tensor):
            return part if part.device == device else part.to(device, non_blocking=non_blocking)
        return part.to(device) if callable(getattr(part, "to", None)) else None

    return _map(value, move)


def of_torch(value):
    """The value with torch's tensors in the place of the engine's."""
    return _map(value, lambda part: to_torch(part) if isinstance(part, Tensor) else None)


def _map(value, function):
    """The value with what the function makes of its parts; of what it makes None the parts are taken."""
    made = function(value)
    if made is not None:
        return made
    contents = contents_of(value)
    if contents is None:
        return value
    parts = contents.values() if isinstance(contents, dict) else contents
    mapped = [_map(part, function) for part in parts]
    if all(new is old for new, old in zip(mapped, parts)):
        return value
    return again(value, dict(zip(contents, mapped)) if isinstance(contents, dict) else mapped)
