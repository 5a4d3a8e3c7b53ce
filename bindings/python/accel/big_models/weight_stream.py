# SPDX-License-Identifier: Apache-2.0
"""Weights that come to an accelerator before the modules that need them run."""

import torch

from .. import capi
from ..engine.bridge import from_torch, to_torch
from ..generated import methods
from ..tensors.device import Device


class WeightStream(methods.WeightStream):
    """Modules in the order in which they run, by their lists of tensors on the CPU. The engine copies those of the modules that are expected
    next while the present one computes, into memory that it uses again."""

    def __init__(self, tensors, device):
        self.device, self._tensors = torch.device(device), tensors
        groups = [[from_torch(tensor) for tensor in of_module] for of_module in tensors]
        self._stream = capi.accel_weight_stream_create(groups, Device(str(self.device)), capi.ACCEL_UNSET_INT64)

    def __reduce__(self):
        """A copy of the model has a stream of its own weights."""
        return WeightStream, (self._tensors, self.device)

    def begin_use(self, place):
        """The tensors of the module at this place, on the device."""
        return [to_torch(tensor) for tensor in capi.accel_weight_stream_begin_use(self._stream, place)]


def can_stream(hooks):
    """Whether all of these hooks bring weights, and from the CPU to the same accelerator."""
    devices = {torch.device("cpu" if hook.execution_device is None else hook.execution_device) for hook in hooks}
    if len(devices) != 1 or next(iter(devices)).type in ("cpu", "meta"):
        return False
    tensors = [tensor for hook in hooks for tensor in hook.streamed_tensors()]
    return bool(tensors) and all(tensor.device.type == "cpu" and tensor.layout == torch.strided and tensor.dtype != torch.int8 for tensor in tensors)
