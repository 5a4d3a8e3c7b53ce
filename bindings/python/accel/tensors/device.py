# SPDX-License-Identifier: Apache-2.0
"""Devices: "cpu", "cuda:1", "meta", and every other that LibTorch knows or a plugin registered."""

import functools
from typing import Any

from .. import capi
from ..engine.torch_types import torch_module

_number_of: Any = vars(capi.accel_device_t)["type"].__get__


@functools.lru_cache(maxsize=None)
def _name_of(number):
    return capi.accel_device_type_name(number)


_NAMES = frozenset(_name_of(number) for number in range(capi.ACCEL_DEVICE_OUT_OF_TREE))


class Device(capi.accel_device_t):
    """A device; the engine's own ones are of this class too."""

    __slots__ = ()

    def __new__(cls, text):
        return text if isinstance(text, Device) else capi.accel_device_parse(str(text))

    def __init__(self, *_):  # the engine has filled it in already
        pass

    @property
    def type(self):
        """ "cpu", "cuda", "meta" and so on; of an out-of-tree device the name that its plugin registered."""
        return _name_of(_number_of(self))

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
    if not isinstance(value, str):
        return isinstance(value, Device) or _is_of_torch(value)
    name = value.partition(":")[0]
    return name in _NAMES or name != "" and name == capi.accel_device_type_name(capi.ACCEL_DEVICE_OUT_OF_TREE)


capi.use_class(Device)
CPU = Device("cpu")
