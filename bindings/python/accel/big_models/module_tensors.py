# SPDX-License-Identifier: Apache-2.0
"""Single tensors of models of torch or of accel: their names, their devices, and which are the same. torch_module_tensors.py has the functions
for torch."""

from .. import capi
from ..engine.torch_types import with_torch
from ..engine.values import to_engine
from ..modules.argument_types import engine_module
from ..tensors import dtypes
from ..tensors.device import Device


@with_torch("..big_models.torch_module_tensors")
def named_module_tensors(module, include_buffers=True, recurse=False, remove_non_persistent=False):
    """Pairs of name and tensor: the parameters, then the buffers; without those that no state dict has with `remove_non_persistent`."""
    return iter(capi.accel_named_module_tensors(engine_module("named_module_tensors", module), int(include_buffers), int(recurse), int(remove_non_persistent)).items())


@with_torch("..big_models.torch_module_tensors")
def get_non_persistent_buffers(module, recurse=False, fqns=False):
    """The names of the buffers that no state dict has; with `fqns` whole paths."""
    paths = capi.accel_get_non_persistent_buffers(engine_module("get_non_persistent_buffers", module), int(recurse))
    return {path if fqns else path.rpartition(".")[2] for path in paths}


@with_torch("..big_models.torch_module_tensors")
def find_tied_parameters(model, **_):
    """The groups of names of parameters that are one tensor, sorted."""
    return capi.accel_find_tied_parameters(engine_module("find_tied_parameters", model))


@with_torch("..big_models.torch_module_tensors")
def find_shared_buffers(model):
    """The groups of names of buffers that are one tensor, sorted. Modules of accel have none."""
    return []


@with_torch("..big_models.torch_module_tensors")
def retie_parameters(model, tied_params):
    """Makes the parameters of each group one tensor again: the first that is not on the device meta."""
    capi.accel_retie_parameters(engine_module("retie_parameters", model), tied_params)


@with_torch("..big_models.torch_module_tensors")
def set_module_tensor_to_device(module, tensor_name, device, value=None, dtype=None, fp16_statistics=None, tied_params_map=None,
                                non_blocking=False, clear_cache=True):
    """Puts a parameter or a buffer on a device, with a new value if one is given, which is what a tensor on the device meta needs. The value
    gets `dtype`, or the dtype that the tensor had; integers keep theirs where `dtype` is given. `tied_params_map` has, by the addresses of
    tied tensors, what is on which device already. `clear_cache` gives cached memory of the device back, which takes its time. Modules of accel
    have neither `tied_params_map` (retie_parameters() ties theirs) nor `fp16_statistics`."""
    if fp16_statistics is not None or tied_params_map is not None:
        raise ValueError(f"{'fp16_statistics' if tied_params_map is None else 'tied_params_map'} is for models of torch; expected none for a "
                         f"{type(module).__name__} of accel, whose tied tensors retie_parameters() makes one again")
    kind = capi.ACCEL_UNSET if dtype is None else dtypes.dtype(dtype).number
    capi.accel_set_module_tensor_to_device(engine_module("set_module_tensor_to_device", module), tensor_name, Device(str(device)), to_engine(value), kind)
