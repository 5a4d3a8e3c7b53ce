"""Models of torch or of accel whose weights are put away between their forwards."""

from .. import capi
from ..engine.scopes import scope
from ..engine.torch_types import is_torch_model
from ..modules.given import check_model, engine_module
from ..tensors.device import Device


def has_offloaded_params(module):
    """Whether the weights of a module, itself and not what is in it, are put away between its forwards."""
    if is_torch_model(module):
        return _hooks().has_offloaded_params(module)
    return bool(capi.accel_has_offloaded_params(engine_module("has_offloaded_params", module)))


def align_module_device(module, execution_device=None):
    """A scope in which the weights of a module are on the device where it computes, or on another one. Changes to weights that are put away
    are lost with the scope."""
    if is_torch_model(module):
        return _hooks().align_module_device(module, execution_device)
    if execution_device is not None:
        device = Device(str(execution_device))
    else:
        device = capi.accel_device_t()
        device.type = device.index = -1  # where it computes
    return scope(capi.accel_align_module_device_begin, engine_module("align_module_device", module), device)


def get_state_dict_offloaded_model(model):
    """The state dict of a model on the CPU, with the weights that are put away."""
    return _hooks().get_state_dict_offloaded_model(model) if is_torch_model(model) else model.state_dict()


def _hooks():
    from . import align_devices  # imports torch

    return align_devices
