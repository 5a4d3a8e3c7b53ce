# SPDX-License-Identifier: Apache-2.0
"""Weights of models in files: one file, or several with an index."""

import os

from .. import capi
from ..engine.torch_types import is_torch_model, is_torch_tensor, torch_module
from ..engine.values import to_engine
from ..modules.argument_types import wrong_kind
from ..modules.module import Module
from ..state.options import fill
from ..tensors import dtypes
from . import device_maps


def load_state_dict(checkpoint_file, device_map=None):
    """The weights in a file of safetensors or torch.save(), in several with an index, or in a folder with one of these: torch's tensors
    where torch is imported, which share the memory of the mapped file. With a device map each is where this puts it, and on the CPU what
    is on the disk."""
    if torch_module() is not None:
        from . import checkpoint_loading

        return checkpoint_loading.load_state_dict(checkpoint_file, device_map)
    return capi.accel_load_state_dict(str(checkpoint_file), device_maps.to_engine(device_map))


def load_checkpoint_in_model(model, checkpoint, device_map=None, offload_folder=None, dtype=None, offload_state_dict=False, offload_buffers=False,
                             keep_in_fp32_modules=None, offload_8bit_bnb=False, strict=False, full_state_dict=True, broadcast_from_rank0=False):
    """Loads weights into a model of torch or of accel. `checkpoint` is a file, an index of several, or a folder with one of these. With a
    device map each tensor comes to its device; of what is on the disk an index in `offload_folder` says where it is: in the checkpoint itself
    if that is of safetensors. `dtype` is that of the loaded numbers, without which they get the model's; what is in one of the
    `keep_in_fp32_modules` does not become float16. With `strict` the names must be those of the model. With broadcast_from_rank0 rank 0
    reads, and sends to the others (models of torch: without a device map; with one each rank reads, since what is mapped takes no memory);
    what is on the disk of a module of accel is written to `offload_folder` then. offload_state_dict has no effect: mapped files take no
    memory. Nor has offload_8bit_bnb: weights of quantized layers become codes wherever they are, one after the other."""
    if isinstance(device_map, str):
        raise ValueError(f"device_map={device_map!r}: expected a map; load_checkpoint_and_dispatch() takes the name of a strategy")
    if is_torch_model(model):
        from . import checkpoint_loading

        checkpoint_loading.load_checkpoint_in_model(model, checkpoint, device_map, offload_folder, dtype, offload_buffers, keep_in_fp32_modules, strict,
                                                    full_state_dict, broadcast_from_rank0)
    elif isinstance(model, Module):
        _load_into_module(model, checkpoint, device_map, dtype=dtype, strict=strict, offload_folder=offload_folder,
                          offload_buffers=offload_buffers, keep_in_fp32_modules=keep_in_fp32_modules, broadcast_from_rank0=broadcast_from_rank0)
    else:
        raise wrong_kind("load_checkpoint_in_model", model, "a model", "one of accel or torch")


def in_floating_type(value, name):
    """A floating tensor of torch or of accel in the type of this name; anything else as it is."""
    if not hasattr(value, "is_floating_point") or not value.is_floating_point():
        return value
    return value.to(dtype=getattr(torch_module() if is_torch_tensor(value) else dtypes, name))


def tree_of(state):
    """The engine's module whose weights are these, by their dotted names. A name with others below it, as a weight has scales, is a parameter."""
    around = {path[:dot] for path in state for dot, letter in enumerate(path) if letter == "."}
    modules = {"": capi.accel_module_create("Module")}

    def module_of(path):
        if path not in modules:
            parent, _, name = path.rpartition(".")
            modules[path] = capi.accel_module_create("Module")
            capi.accel_module_add_child(module_of(parent), name, modules[path])
        return modules[path]

    for path, value in state.items():
        parent, _, name = path.rpartition(".")
        if path in around:
            capi.accel_module_add_parameter(module_of(parent), name, to_engine(value), 0)
        else:
            capi.accel_module_add_buffer(module_of(parent), name, to_engine(value), 1)
    return modules[""]


def _load_into_module(model, checkpoint, device_map, **settings):
    """load_checkpoint_in_model() for a module of accel."""
    options = dispatch_options(**settings, state=device_maps.state_for(settings["broadcast_from_rank0"]))
    capi.accel_load_checkpoint_in_model(model.handle, os.fspath(checkpoint), device_maps.to_engine(device_map), options)


def joined(names):
    """Names as the engine takes them: one text."""
    return names if names is None or isinstance(names, str) else ",".join(names) or None


def dispatch_options(**settings):
    """Settings of the engine for models that are spread over devices."""
    named = {name: joined(value) if isinstance(value, (list, tuple, set)) else value for name, value in settings.items()}
    for name in ("main_device", "offload_folder"):
        if named.get(name) is not None:
            named[name] = str(named[name])
    if named.get("dtype") is not None:
        named["dtype"] = dtypes.dtype(named["dtype"]).number
    return fill(capi.accel_dispatch_options_t(), named)
