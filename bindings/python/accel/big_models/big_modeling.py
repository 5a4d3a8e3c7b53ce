# SPDX-License-Identifier: Apache-2.0
"""Models that are larger than a device, of torch or of accel: they are made without memory, spread over devices, and stored in files.

For modules of accel the engine does it. Modules of torch have hooks in Python (align_devices.py), and the engine finds the device
maps, maps files and reads ahead.
"""

import os

from .. import capi
from ..engine.torch_types import is_torch_model, with_torch
from ..engine.values import to_engine
from ..generated import methods
from ..modules.argument_types import check_model, engine_module
from ..parallel.split_sequences import require_full_attention as _refuse_recurrent_layers_under_sequence_parallelism  # noqa: F401, Accelerate's name
from ..tensors import dtypes
from ..tensors.device import Device
from . import device_maps
from .weights import dispatch_options, joined


@with_torch("..big_models.dispatch")
def cpu_offload(model, execution_device=None, offload_buffers=False, state_dict=None, preload_module_classes=None):
    """Keeps the weights of a model in the memory of the CPU, in `state_dict` if it is given. Each module gets its own for its forward, on
    `execution_device`, by default that of the first parameter; modules of the `preload_module_classes` those of all inside of them, too. The
    model."""
    options = dispatch_options(offload_buffers=offload_buffers, preload_module_classes=preload_module_classes)
    capi.accel_cpu_offload(engine_module("cpu_offload", model), _device(execution_device), to_engine(state_dict), options)
    return model


@with_torch("..big_models.dispatch")
def disk_offload(model, offload_dir, execution_device=None, offload_buffers=False, preload_module_classes=None):
    """Keeps the weights of a model in a folder: those that an index there names, else they are written. Otherwise as cpu_offload()."""
    options = dispatch_options(offload_buffers=offload_buffers, preload_module_classes=preload_module_classes)
    capi.accel_disk_offload(engine_module("disk_offload", model), os.fspath(offload_dir), _device(execution_device), options)
    return model


@with_torch("..big_models.model_offload")
def cpu_offload_with_hook(model, execution_device=None, prev_module_hook=None):
    """The model, which moves to a device when it is called and stays there, and its hook, whose offload() moves it back to the CPU. The model
    of `prev_module_hook` leaves the device when this one is called."""
    device = capi.accel_device_default() if execution_device is None else Device(device_maps.name_of(execution_device))
    previous = None if prev_module_hook is None else prev_module_hook.hook
    return model, OffloadHook(model, capi.accel_cpu_offload_with_hook(engine_module("cpu_offload_with_hook", model), device, previous))


class OffloadHook(methods.OffloadHook):
    """A model of accel and its hook: offload() puts the model on the CPU, remove() takes the hook away."""

    def __init__(self, model, hook):
        self.model, self.hook = model, hook


def dispatch_model(model, device_map, main_device=None, state_dict=None, offload_dir=None, offload_index=None, offload_buffers=False, skip_keys=None,
                   preload_module_classes=None, force_hooks=False):
    """Spreads a model over devices. `device_map` has for paths of modules a device: a number or a name of an accelerator, "cpu" or "disk".
    Modules on the disk, and beside accelerators those on the CPU, compute on `main_device`, by default the first accelerator of the map; weights
    come there for a forward only. Weights on the CPU are the model's own, or in `state_dict`; weights on the disk are in `offload_dir`, where
    they are written if there is no index, or where `offload_index` says. Values of the `skip_keys` in keyword arguments are not moved. With
    `force_hooks` inputs are moved also where there is one device. The model."""
    device_maps.check_device_map(check_model("dispatch_model", model), device_map)
    if is_torch_model(model):
        return _torch().dispatch_model(model, device_map, main_device, state_dict, offload_dir, offload_index, offload_buffers, skip_keys,
                                       preload_module_classes, force_hooks)
    if offload_index is not None:
        raise ValueError("offload_index is for models of torch; expected offload_dir, the folder of the index")
    options = dispatch_options(main_device=main_device, offload_folder=offload_dir, offload_buffers=offload_buffers, skip_keys=skip_keys,
                       preload_module_classes=preload_module_classes, force_hooks=force_hooks)
    capi.accel_dispatch_model(engine_module("dispatch_model", model), device_maps.to_engine(device_map), to_engine(state_dict), options)
    model.hf_device_map = dict(device_map)
    return model


def load_checkpoint_and_dispatch(model, checkpoint, device_map=None, max_memory=None, no_split_module_classes=None, offload_folder=None,
                                 offload_buffers=False, dtype=None, offload_state_dict=None, skip_keys=None, preload_module_classes=None,
                                 force_hooks=False, strict=False, full_state_dict=True, broadcast_from_rank0=False):
    """Loads weights into a model, which may be one without memory, and dispatches it. `device_map` is a map, or one of "auto", "balanced",
    "balanced_low_0" and "sequential", which find one that keeps to `max_memory`; without it nothing is dispatched. Weights on the disk stay in
    the files of the checkpoint, and offload_state_dict has no effect. For modules of accel, weights that are not in these files, and all with
    `broadcast_from_rank0`, are written to `offload_folder`; for modules of torch none are. The model."""
    settings = {"dtype": dtype, "offload_buffers": offload_buffers, "strict": strict, "broadcast_from_rank0": broadcast_from_rank0}
    shared = {"skip_keys": skip_keys, "preload_module_classes": preload_module_classes, "force_hooks": force_hooks}
    if is_torch_model(model):
        device_map = device_maps.resolve(model, device_map, max_memory, no_split_module_classes, dtype, offload_buffers)
        return _torch().load_and_dispatch(model, checkpoint, device_map, {**settings, "full_state_dict": full_state_dict}, shared)
    options = dispatch_options(**settings, **shared, no_split_module_classes=no_split_module_classes, offload_folder=offload_folder)
    state = device_maps.state_for(broadcast_from_rank0)
    handle = engine_module("load_checkpoint_and_dispatch", model)
    used = capi.accel_load_checkpoint_and_dispatch(state, handle, os.fspath(checkpoint), device_maps.to_engine(device_map),
                                                   device_maps.to_engine(max_memory), options)
    if device_map is not None:
        model.hf_device_map = used
    return model


@with_torch("..big_models.layerwise_casting")
def attach_layerwise_casting_hooks(module, storage_dtype, compute_dtype, skip_modules_pattern=None, skip_modules_classes=None, non_blocking=False):
    """Stores the weights of the linear and convolutional layers of a model in one dtype, in which they have less memory, and computes in
    another. Layers of the classes that are given, and those whose paths a pattern is found in, stay as they are, with all inside of them."""
    classes = [kind if isinstance(kind, str) else kind.__name__ for kind in skip_modules_classes or ()]
    stored, computed = (dtypes.dtype(kind).number for kind in (storage_dtype, compute_dtype))
    capi.accel_attach_layerwise_casting(engine_module("attach_layerwise_casting_hooks", module), stored, computed, joined(skip_modules_pattern),
                                        joined(classes))


def _torch():
    from . import dispatch  # imports torch

    return dispatch


def _device(device):
    return None if device is None else Device(device_maps.name_of(device))
