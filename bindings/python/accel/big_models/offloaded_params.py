# SPDX-License-Identifier: Apache-2.0
"""Models of torch or of accel whose weights are put away between their forwards."""

from .. import capi
from ..engine.scopes import scope
from ..engine.torch_types import with_torch
from ..modules.argument_types import check_model, engine_module
from ..tensors.device import Device


@with_torch("..big_models.align_devices")
def has_offloaded_params(module):
    """Whether the weights of a module, itself and not what is in it, are put away between its forwards."""
    return bool(capi.accel_has_offloaded_params(engine_module("has_offloaded_params", module)))


@with_torch("..big_models.align_devices")
def align_module_device(module, execution_device=None):
    """A scope in which the weights of a module are on the device where it computes, or on another one. Changes to weights that are put away
    are lost with the scope."""
    device = None if execution_device is None else Device(str(execution_device))
    return scope(capi.accel_align_module_device_begin, engine_module("align_module_device", module), device)


@with_torch("..big_models.align_devices")
def get_state_dict_offloaded_model(model):
    """The state dict of a model on the CPU, with the weights that are put away."""
    return check_model("get_state_dict_offloaded_model", model).state_dict()
