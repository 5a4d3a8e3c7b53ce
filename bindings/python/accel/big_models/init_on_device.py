# SPDX-License-Identifier: Apache-2.0
"""Models that are made on another device than that of their program, or without memory."""

import contextlib

from .. import capi
from ..engine.scopes import scope
from ..engine.torch_types import torch_module
from ..state.environment import parse_flag_from_env
from ..tensors.device import Device


@contextlib.contextmanager
def init_empty_weights(include_buffers=None):
    """A scope in which models have parameters without memory, on the device meta; buffers too with `include_buffers`, which is else the
    variable ACCELERATE_INIT_INCLUDE_BUFFERS. Models of torch take part where torch is imported before."""
    with init_on_device("meta", include_buffers):
        yield


@contextlib.contextmanager
def init_on_device(device, include_buffers=None):
    """A scope in which the parameters of models that are made come to a device; with `include_buffers` all tensors are made there."""
    if include_buffers is None:
        include_buffers = parse_flag_from_env("ACCELERATE_INIT_INCLUDE_BUFFERS", False)
    with contextlib.ExitStack() as scopes:
        scopes.enter_context(scope(capi.accel_init_on_device_begin, Device(str(device)), int(include_buffers)))
        if torch_module() is not None:
            from . import empty_models

            scopes.enter_context(empty_models.made_on(device, include_buffers))
        yield
