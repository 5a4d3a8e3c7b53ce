# SPDX-License-Identifier: Apache-2.0
"""Models of torch that are spread over devices, the memory of the CPU and files."""

import functools
import itertools
import logging
import os

import torch

from ..modules.model_hooks import add_hook_to_module
from ..state.machine import check_cuda_p2p_ib_support
from .align_devices import (AlignDevicesHook, aligning_hook, attach_align_device_hook, attach_align_device_hook_on_blocks,
                            offloading_hook)
from .checkpoint_loading import load_weights
from .offloaded_weights import OffloadedWeightsLoader, extract_submodules_state_dict, offload_state_dict
from .read_ahead import ReadAhead
from .torch_module_tensors import find_shared_buffers, find_tied_parameters, owner_of, retie_parameters
from .weight_names import WeightsByAllNames
from .weight_stream import WeightStream, can_stream

_logger = logging.getLogger(__name__)
_META = torch.device("meta")


def get_parameter_device(parameter):
    """The device of the first parameter of a model, which is the argument."""
    return next(iter(parameter.parameters())).device


def cpu_offload(model, execution_device=None, offload_buffers=False, state_dict=None, preload_module_classes=None):
    if state_dict is None:
        state_dict = {name: tensor.to("cpu") for name, tensor in model.state_dict().items()}
    return _offload(model, state_dict, execution_device, offload_buffers, preload_module_classes)


def disk_offload(model, offload_dir, execution_device=None, offload_buffers=False, preload_module_classes=None):
    if not _has_index(offload_dir):
        offload_state_dict(offload_dir, model.state_dict())
    weights = OffloadedWeightsLoader(save_folder=offload_dir)
    return _offload(model, weights, execution_device, offload_buffers, preload_module_classes, in_files=True)


def _has_index(folder):
    return os.path.isfile(os.path.join(folder, "index.json"))


def _offload(model, weights, execution_device, offload_buffers, preload_module_classes, in_files=False):
    device = get_parameter_device(model) if execution_device is None else execution_device
    tied, weights = find_tied_parameters(model), _by_all_names(weights, model)
    add_hook_to_module(model, AlignDevicesHook(io_same_device=True), append=True)
    attach_align_device_hook(model, device, offload=True, offload_buffers=offload_buffers, weights_map=weights,
                             preload_module_classes=preload_module_classes, tied_params_map=_addresses(model, tied))
    _bring_ahead(model, in_files)
    return model


def _bring_ahead(model, in_files):
    """Offloaded weights are read, and copied to an accelerator, before the modules run that need them: first in the order of the tree."""
    by_path = {path: hook for path, hook in ((path, offloading_hook(module)) for path, module in model.named_modules()) if hook is not None}
    hooks, nested = list(by_path.values()), _tied_inside(by_path)
    for hook in hooks:
        hook.keep_from_stream(nested)
    if can_stream(hooks):
        streaming = [hook for hook in hooks if hook.streamed_tensors()]
        stream = WeightStream([hook.streamed_tensors() for hook in streaming], hooks[0].execution_device)
        for place, hook in enumerate(streaming):
            hook.stream_with(stream, place)
        aligning_hook(model).end_passes_of(stream)
    elif in_files:
        _read_ahead(hooks)


def _tied_inside(hooks):
    """The ties of weights that a module shares with a module inside of it, by the paths of modules: they are in use at once, and come to the
    device once."""
    paths: dict = {}
    for path, hook in hooks.items():
        for tie in hook.ties():
            paths.setdefault(tie, []).append(path)
    return {tie for tie, users in paths.items()
            if any(outer == "" or f"{inner}.".startswith(f"{outer}.") for inner, outer in itertools.permutations(users, 2))}


def _read_ahead(hooks):
    ahead = ReadAhead([hook.offloaded_tensors() for hook in hooks])
    for place, hook in enumerate(hooks):
        hook.read_with(ahead, place)


def load_and_dispatch(model, checkpoint, device_map, loading, dispatching):
    """`loading` are the settings of load_weights(), `dispatching` those of dispatch_model() that both have under these names."""
    on_disk = load_weights(model, checkpoint, device_map, **loading)
    if device_map is None:
        return model
    return dispatch_model(model, device_map, offload_buffers=loading["offload_buffers"], on_disk=on_disk, **dispatching)


def dispatch_model(model, device_map, main_device=None, state_dict=None, offload_dir=None, offload_index=None, offload_buffers=False, skip_keys=None,
                   preload_module_classes=None, force_hooks=False, on_disk=None):
    """`on_disk`: the weights there and their files, if they are mapped already."""
    devices = list(dict.fromkeys(device_map.values()))
    if len(devices) == 1 and devices[0] != "disk" and not force_hooks:
        model.to(devices[0])
        model.hf_device_map = dict(device_map)
        return model
    main_device = next((device for device in devices if device not in ("cpu", "disk")), "cpu") if main_device is None else main_device
    cpu_modules, disk_modules = ([path for path, device in device_map.items() if device == where] for where in ("cpu", "disk"))
    if disk_modules and on_disk is None and offload_dir is None and offload_index is None:
        raise ValueError(f"{', '.join(disk_modules)}: the device map puts these on the disk, and there is no offload_dir; expected a folder, or an "
                         "offload_index of where the weights are")
    if cpu_modules and main_device != "cpu" and state_dict is None:
        state_dict = extract_submodules_state_dict(model.state_dict(), cpu_modules)
    if disk_modules and on_disk is None and offload_index is None and not _has_index(offload_dir):
        offload_state_dict(offload_dir, extract_submodules_state_dict(model.state_dict(), disk_modules))
    away = ("disk",) if main_device in ("cpu", "mps") else ("cpu", "disk")
    weights = None
    if on_disk is not None:
        files = {name: {"safetensors_file": os.path.abspath(path), "weight_name": own} for name, (_, path, own) in on_disk.items()}
        weights = OffloadedWeightsLoader(state_dict, index=files, mapped={name: value for name, (value, *_) in on_disk.items()})
    elif state_dict is not None or disk_modules or offload_index is not None:
        weights = OffloadedWeightsLoader(state_dict, offload_dir if disk_modules else None, offload_index)
    tied = find_tied_parameters(model)
    attach_align_device_hook_on_blocks(
        model, {**{path: main_device if device in ("cpu", "disk") else device for path, device in device_map.items()}, "": main_device},
        {path: device in away for path, device in device_map.items()}, None if weights is None else _by_all_names(weights, model),
        offload_buffers, skip_keys=skip_keys, preload_module_classes=preload_module_classes, tied_params_map=_addresses(model, tied))
    put_away = [device for device in devices if device in away]
    if put_away:
        _logger.warning("Some parameters are on the device meta between forwards, because they are offloaded to the %s", " and the ".join(put_away))
    retie_parameters(model, tied)
    if put_away:
        _bring_ahead(model, in_files=bool(disk_modules))
    _guard(model)
    if len([device for device in devices if device not in ("cpu", "disk")]) > 1 and not check_cuda_p2p_ib_support():
        _logger.warning("The driver of these GPUs is too old for transfers between RTX 4000 cards, and results can be wrong; expected a newer driver")
    model.hf_device_map = dict(device_map)
    return model


def _by_all_names(weights, model):
    return WeightsByAllNames(weights, find_tied_parameters(model) + find_shared_buffers(model))


def _addresses(model, tied):
    """For each tied tensor with memory an empty map of its copies by device."""
    tensors = [getattr(*owner_of(model, path)) for group in tied for path in group]
    return {tensor.data_ptr(): {} for tensor in tensors if tensor.device != _META}


def _guard(model):
    """The model says that it is not to be moved, and is not when some weights are away."""
    model.to, model.cuda = (functools.update_wrapper(functools.partial(_move, model, move), move) for move in (model.to, model.cuda))


def _move(model, move, *args, **kwargs):
    """A copy of the model moves the copy: these objects are copied with it, which a function inside of another one is not."""
    if move.__name__ != "to" or torch._C._nn._parse_to(*args, **kwargs)[0] is not None:
        _logger.warning("%s() of a dispatched model: it should stay where its device map puts it", move.__name__)
    if any(parameter.device == _META for parameter in model.parameters()):
        raise RuntimeError(f"{move.__name__}() of a dispatched model: some of its weights are offloaded, so that it cannot be moved; call "
                           "remove_hook_from_submodules(model) before")
    return move(*args, **kwargs)
