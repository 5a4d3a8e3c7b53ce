# SPDX-License-Identifier: Apache-2.0
"""Batches on a device, and as torch has them."""

import operator
import warnings

import torch

from ..tensors.tensor_type import is_tensor
from .bridge import to_torch
from .values import again, contents_of


def to_device(value, device, non_blocking=False):
    """The value with its tensors on a device, in containers of the same classes. Tensors that are there already are not copied. An accelerator
    gets what is on the host from page-locked memory, beside the host."""
    if isinstance(value, torch.Tensor):
        if value.device == device:
            return value
        locked = _page_locked(value, device)
        return value.to(device, non_blocking=non_blocking) if locked is None else locked.to(device, non_blocking=True)
    if type(value) not in (list, tuple, dict) and callable(getattr(value, "to", None)):
        return value.to(device)
    return _map_contents(value, to_device, device, non_blocking)


def _page_locked(tensor, device):
    """A copy in page-locked memory, which torch keeps for the next one. None where there is none to make."""
    if type(tensor) is not torch.Tensor or not tensor.is_cpu or tensor.layout is not torch.strided or tensor.requires_grad or tensor.numel() == 0:
        return None
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None or accelerator.type != device.type or tensor.is_pinned():
        return None
    try:
        return tensor.pin_memory()
    except RuntimeError as error:  # said once, by Python's filter of warnings
        warnings.warn(f"the system gives no page-locked memory for a batch, so that its copy waits: {str(error).splitlines()[0]}", stacklevel=2)
        return None


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
