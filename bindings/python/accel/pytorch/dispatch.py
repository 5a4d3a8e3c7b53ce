"""Models of torch that are spread over devices, the memory of the CPU and files."""

import functools
import logging
import os

import torch

from ..machine import check_cuda_p2p_ib_support
from ..model_hooks import add_hook_to_module
from .align_devices import (AlignDevicesHook, aligning_hook, attach_align_device_hook, attach_align_device_hook_on_blocks,
                            offloading_hook)
from .checkpoint_loading import load_weights
from .module_tensors import find_tied_parameters, owner_of, retie_parameters
from .offloaded_weights import OffloadedWeightsLoader, extract_submodules_state_dict, offload_state_dict
from .read_ahead import ReadAhead
from .weight_stream import WeightStream, can_stream

_logger = logging.getLogger(__name__)
_META = torch.device("meta")


def first_device(model):
    """That of the first parameter."""
    return next(iter(model.parameters())).device


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
    device = first_device(model) if execution_device is None else execution_device
    add_hook_to_module(model, AlignDevicesHook(io_same_device=True), append=True)
    attach_align_device_hook(model, device, offload=True, offload_buffers=offload_buffers, weights_map=weights,
                             preload_module_classes=preload_module_classes)
    _bring_ahead(model, in_files)
    return model


def _bring_ahead(model, in_files):
    """Offloaded weights are read, and copied to an accelerator, before the modules run that need them: first in the order of the tree."""
    hooks = [hook for hook in map(offloading_hook, model.modules()) if hook is not None]
    if can_stream(hooks):
        stream = WeightStream([hook.offloaded_tensors() for hook in hooks], hooks[0].execution_device)
        for place, hook in enumerate(hooks):
            hook.stream_with(stream, place)
        aligning_hook(model).end_passes_of(stream)
    elif in_files:
        _read_ahead(hooks)


def _read_ahead(hooks):
    ahead = ReadAhead([hook.offloaded_tensors() for hook in hooks])
    for place, hook in enumerate(hooks):
        hook.read_with(ahead, place)


def load_and_dispatch(model, checkpoint, device_map, loading, dispatching):
    """`loading` are the settings of load_weights(), `dispatching` those of dispatch_model() that both have under these names."""
    on_disk = load_weights(model, checkpoint, device_map, **loading)
    if device_map is None:
        return model
    weights = {name: value for name, (value, _) in on_disk.items()}
    return dispatch_model(model, device_map, offload_buffers=loading["offload_buffers"], on_disk=weights, **dispatching)


def dispatch_model(model, device_map, main_device=None, state_dict=None, offload_dir=None, offload_index=None, offload_buffers=False, skip_keys=None,
                   preload_module_classes=None, force_hooks=False, on_disk=None):
    """`on_disk`: the weights there, if they are mapped already."""
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
        weights = {**on_disk, **(state_dict or {})}
    elif state_dict is not None or disk_modules or offload_index is not None:
        weights = OffloadedWeightsLoader(state_dict, offload_dir if disk_modules else None, offload_index)
    tied = find_tied_parameters(model)
    attach_align_device_hook_on_blocks(
        model, {**{path: main_device if device in ("cpu", "disk") else device for path, device in device_map.items()}, "": main_device},
        {path: device in away for path, device in device_map.items()}, weights, offload_buffers, skip_keys=skip_keys,
        preload_module_classes=preload_module_classes, tied_params_map=_addresses(model, tied))
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


def _addresses(model, tied):
    """What is on which device yet of each tied tensor that has memory: nothing."""
    tensors = [getattr(*owner_of(model, path)) for group in tied for path in group]
    return {tensor.data_ptr(): {} for tensor in tensors if tensor.device != _META}


def _guard(model):
    """The model says that it is not to be moved, and is not when some weights are away."""
    def guarded(move):
        @functools.wraps(move)
        def wrapper(*args, **kwargs):
            if move.__name__ != "to" or torch._C._nn._parse_to(*args, **kwargs)[0] is not None:
                _logger.warning("%s() of a dispatched model: it should stay where its device map puts it", move.__name__)
            if any(parameter.device == _META for parameter in model.parameters()):
                raise RuntimeError(f"{move.__name__}() of a dispatched model: some of its weights are offloaded, so that it cannot be moved; call "
                                   "remove_hook_from_submodules(model) before")
            return move(*args, **kwargs)

        return wrapper

    model.to, model.cuda = guarded(model.to), guarded(model.cuda)
