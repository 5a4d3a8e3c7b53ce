"""Devices: "cpu", "cuda:1", "meta"."""

from typing import Any

from . import capi
from .torch_types import torch_module

_TYPES = {capi.ACCEL_DEVICE_CPU: "cpu", capi.ACCEL_DEVICE_CUDA: "cuda", capi.ACCEL_DEVICE_META: "meta"}

# Those of the reference that the engine does not drive: it says so when one is asked for.
_FOREIGN = ("mps", "mlu", "sdaa", "musa", "npu", "hpu", "xpu", "neuron", "xla")

_number_of: Any = vars(capi.accel_device_t)["type"].__get__


class Device(capi.accel_device_t):
    """A device; the engine's own ones are of this class too."""

    __slots__ = ()

    def __new__(cls, text):
        return text if isinstance(text, Device) else capi.accel_device_parse(str(text))

    def __init__(self, *_):  # the engine has filled it in already
        pass

    @property
    def type(self):
        """ "cpu", "cuda" or "meta"."""
        return _TYPES.get(_number_of(self), "unknown")

    def __str__(self):
        return self.type if self.index < 0 else f"{self.type}:{self.index}"

    def __repr__(self):
        return f"Device('{self}')"

    def __eq__(self, other):
        return str(self) == str(other) if isinstance(other, (Device, str)) or _is_of_torch(other) else NotImplemented

    def __hash__(self):
        return hash(str(self))

    def __reduce__(self):
        return Device, (str(self),)


def _is_of_torch(value):
    return torch_module() is not None and isinstance(value, torch_module().device)


def for_program(device):
    """A device as the program uses devices: torch's where it has imported torch."""
    return device if torch_module() is None else torch_module().device(str(device))


def names_device(value):
    """Whether a device, or the text of one, is meant, and not a dtype."""
    return isinstance(value, Device) or _is_of_torch(value) or isinstance(value, str) and value.partition(":")[0] in (*_TYPES.values(), *_FOREIGN)


capi.use_class(Device)
CPU = Device("cpu")
