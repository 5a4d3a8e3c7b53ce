# SPDX-License-Identifier: Apache-2.0
"""Weights of files in models of torch: each where a device map says.

Files are mapped. A weight that stays on the CPU, or on the disk, is the mapped file itself: its pages are read when they are used, and copied
when they are changed.
"""

import json
import logging
import os

import torch

from .. import capi
from ..compat import constants
from ..parallel.collectives import broadcast, broadcast_object_list
from ..state.process import PartialState
from .offloaded_weights import dtype_name, load_offloaded_weight, mapped_file, offload_weight, save_offload_index
from .quantized_layers import QuantizedLinear, expect_codes
from .torch_module_tensors import (check_tied_parameters_in_config, check_tied_parameters_on_same_device, device_of, find_shared_buffers,
                                   find_tied_parameters, kind_of, owner_of, retie_parameters, set_module_tensor_to_device)
from .weight_names import second_names, with_first

_logger = logging.getLogger(__name__)
_META = torch.device("meta")


def load_state_dict(checkpoint_file, device_map=None):
    if _is_safetensors(checkpoint_file):
        _check_format(checkpoint_file)
    state = mapped_file(checkpoint_file)
    return state if device_map is None else {name: value.to(_memory_of(_device_or_cpu(name, device_map))) for name, value in state.items()}


def _device_or_cpu(name, device_map):
    try:
        return device_of(name, device_map)
    except ValueError:
        return "cpu"


def _memory_of(place):
    return "cpu" if place == "disk" else place


def _is_safetensors(path):
    return os.path.isfile(path) and str(path).endswith(".safetensors")


def _check_format(path):
    """The metadata of a file of safetensors says from which framework its tensors are."""
    metadata = capi.accel_load_metadata(os.fspath(path))
    if not metadata:
        _logger.warning("%s has no metadata that says what wrote it; it is taken as a file of torch", path)
        return
    kind = metadata.get("format")
    if kind not in ("pt", "tf", "flax"):
        raise OSError(f"{path}: its metadata has the format {kind!r}; expected \"pt\", as save_model() and save_pretrained() write it")
    if kind != "pt":
        raise ValueError(f"{path} was saved by {kind}; expected a file of torch")


def _files_of(checkpoint):
    """The files of a checkpoint: a file, an index of several, or a folder with one of these."""
    if os.path.isfile(checkpoint) and not str(checkpoint).endswith(".json"):
        return [os.fspath(checkpoint)]
    index = checkpoint
    if os.path.isdir(checkpoint):
        whole = next((name for name in (constants.WEIGHTS_NAME, constants.SAFE_WEIGHTS_NAME) if os.path.isfile(os.path.join(checkpoint, name))), None)
        if whole is not None:
            return [os.path.join(checkpoint, whole)]
        there = [name for name in os.listdir(checkpoint) if name.endswith(".index.json")]
        if len(there) != 1:
            found = f"several indexes ({', '.join(sorted(there))})" if there else f"no {constants.WEIGHTS_NAME}, {constants.SAFE_WEIGHTS_NAME} or index"
            raise ValueError(f"{checkpoint} has {found}; expected one of these")
        index = os.path.join(checkpoint, there[0])
    if not os.path.isfile(index):
        raise ValueError(f"{checkpoint} is not there: expected a file of weights, an index of several, or a folder with one of them")
    with open(index, encoding="utf-8") as file:
        names = json.load(file)
    return [os.path.join(os.path.dirname(index), name) for name in sorted(set(names.get("weight_map", names).values()))]


def load_checkpoint_in_model(model, checkpoint, device_map=None, offload_folder=None, dtype=None, offload_buffers=False, keep_in_fp32_modules=None,
                             strict=False, full_state_dict=True, broadcast_from_rank0=False):
    if device_map is not None and "disk" in device_map.values() and offload_folder is None:
        raise ValueError("the device map puts modules on the disk, and there is no offload_folder; expected a folder for the index of their weights")
    if device_map is not None and "disk" in device_map.values():
        os.makedirs(offload_folder, exist_ok=True)
    on_disk = load_weights(model, checkpoint, device_map, dtype, offload_buffers, keep_in_fp32_modules, strict, full_state_dict, broadcast_from_rank0,
                           offload_folder)
    if device_map is not None and "disk" in device_map.values():
        save_offload_index(_index_of(on_disk, offload_folder), offload_folder)


def _index_of(on_disk, folder):
    """Where the tensors are: in the files of safetensors that they came from, else in files that are written now."""
    index: dict = {}
    for name, (value, path, own) in on_disk.items():
        if path is None:
            index[name] = {"dtype": dtype_name(value), "shape": list(value.shape)}  # its file is there
        elif _is_safetensors(path):
            index[name] = {"safetensors_file": os.path.abspath(path), "weight_name": own, "dtype": dtype_name(value),
                           "shape": list(value.shape)}
        else:
            offload_weight(value, name, folder, index)
    return index


def load_weights(model, checkpoint, device_map=None, dtype=None, offload_buffers=False, keep_in_fp32_modules=None, strict=False,
                 full_state_dict=True, broadcast_from_rank0=False, offload_folder=None):
    """Puts weights into a model. The weights that the device map puts on the disk, by name: the tensor, its file, and its name there. Weights of
    quantized layers become codes one after the other; those of codes on the disk are files of the offload_folder, whose path is None here."""
    tied, shared = find_tied_parameters(model), find_shared_buffers(model)
    if check_tied_parameters_in_config(model) and not tied:
        _logger.warning("The configuration of %s says that weights are tied, and none are; call tie_weights() before", type(model).__name__)
    if device_map is not None:
        check_tied_parameters_on_same_device(tied, device_map)
    reads = not broadcast_from_rank0 or device_map is not None or _rank() == 0
    found = {name: (value, path, name) for path in (_files_of(checkpoint) if reads else ()) for name, value in load_state_dict(path).items()}
    expect_codes(model, {name: value for name, (value, *_) in found.items()})
    if reads:
        _compare_names(model, found, tied + shared, strict, checkpoint)
    on_disk = {}
    if device_map is not None:
        _find_second_names(found, tied + shared, device_map)
        on_disk = _load_by_map(model, found, device_map, kind_of(dtype), offload_buffers, keep_in_fp32_modules or (), offload_folder)
    elif _is_of_torch_distributed(model, broadcast_from_rank0):
        _distribute(model, {name: value for name, (value, *_) in found.items()}, full_state_dict, broadcast_from_rank0)
    else:
        _fill(model, {name: value for name, (value, *_) in found.items()}, broadcast_from_rank0)
    together = [group for group in shared if device_map is None or len(_devices_of(group, device_map)) == 1]
    retie_parameters(model, with_first(found, tied + together))
    return on_disk


def load_modules(model, checkpoint, left_out=frozenset()):
    """Copies weights into the modules of a model that are not `left_out`; of the files, which are mapped, theirs alone are read. Tensors on the device meta
    get memory, and stay the same objects. Weights that the files lack stay as they are."""
    found = {name: value for path in _files_of(checkpoint) for name, value in load_state_dict(path).items()}
    expect_codes(model, found)
    groups = find_tied_parameters(model) + find_shared_buffers(model)
    _compare_names(model, found, groups, False, checkpoint)
    first_names, done = second_names(found, groups), {}
    for path, module in model.named_modules():
        for tensors in () if module in left_out else (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                whole = f"{path}.{name}" if path else name
                value = found.get(first_names.get(whole, whole))
                if value is None or tensor is None:
                    continue
                if name == "weight" and value.is_floating_point() and isinstance(module, QuantizedLinear):
                    module.set_weight({name: value}, whole)
                    continue
                if id(tensor) in done:  # of another module, too
                    tensors[name] = done[id(tensor)][1]
                    continue
                if value.shape != tensor.shape:
                    raise ValueError(f"{checkpoint}: {whole} has the shape {tuple(value.shape)}; expected {tuple(tensor.shape)}, that of {type(model).__name__}")
                _copy_value(tensors, name, value)
                done[id(tensor)] = tensor, tensors[name]


def _copy_value(tensors, name, value):
    tensor = tensors[name]
    if not tensor.is_meta:
        with torch.no_grad():
            tensor.copy_(value)
        return
    made = value.to(tensor.dtype, copy=True)  # the program may replace the file while it trains
    if isinstance(tensor, torch.nn.Parameter):
        torch.utils.swap_tensors(tensor, torch.nn.Parameter(made, requires_grad=tensor.requires_grad))
    else:
        tensors[name] = made


def _find_second_names(found, groups, device_map):
    """A weight with several names in the model, and one in the files, is found by the others, too, where these are on another device or on the
    disk."""
    for name, first in second_names(found, groups).items():
        place = device_of(name, device_map)
        if place == "disk" or place not in _devices_of([other for group in groups if name in group for other in group if other in found], device_map):
            found[name] = found[first]


def _devices_of(names, device_map):
    return {device_of(name, device_map) for name in names}


def _compare_names(model, found, shared, strict, checkpoint):
    """Weights that the model does not know are logged. With `strict` they are an error, and so are weights that it lacks."""
    known = model.state_dict().keys()
    unexpected = sorted(name for name in found if name not in known)
    lacking = set(known).difference(found)
    if strict:
        lacking.difference_update(name for group in shared if any(other in found for other in group) for name in group)
        if unexpected or lacking:
            raise RuntimeError(f"{checkpoint} does not fit {type(model).__name__}: it has {', '.join(unexpected) or 'nothing'} too much, and lacks "
                               f"{', '.join(sorted(lacking)) or 'nothing'}")
    elif unexpected:
        _logger.warning("Some weights of %s were not used when they were loaded into %s, which does not have them: %s", checkpoint,
                        type(model).__name__, ", ".join(unexpected))


def _load_by_map(model, found, device_map, dtype, offload_buffers, kept, folder):
    known = model.state_dict().keys()
    buffers = {name for name, _ in model.named_buffers(remove_duplicate=False)}
    on_disk = {}
    for name, (value, path, own) in found.items():
        if name not in known or "SCB" in name and name not in buffers:
            continue
        place = device_of(name, device_map)
        kind = torch.float32 if dtype == torch.float16 and value.is_floating_point() and stays_in_fp32(name, kept) else dtype
        if place == "disk" and name not in buffers and value.is_floating_point() and isinstance(owner_of(model, name)[0], QuantizedLinear):
            if name.endswith("weight"):
                on_disk.update(_offload_codes(model, name, value, folder))
                continue
        if place != "disk":
            scale = name.replace("weight", "SCB")
            statistics = found[scale][0] if scale != name and scale in found and scale not in buffers and value.dtype == torch.int8 else None
            set_module_tensor_to_device(model, name, place, value=value, dtype=kind, fp16_statistics=statistics, clear_cache=False)
        elif offload_buffers or name not in buffers:
            set_module_tensor_to_device(model, name, "meta", dtype=value.dtype if kind is None else kind)
            on_disk[name] = value, path, own
        else:
            set_module_tensor_to_device(model, name, "cpu", value=value, dtype=kind)
    return on_disk


def _offload_codes(model, name, value, folder):
    """The codes of a weight, which are files of the folder, mapped."""
    if folder is None:
        raise ValueError(f"{name} becomes codes, and the device map puts it on the disk: expected load_and_quantize_model() with an offload_folder")
    index: dict = {}
    quantize_and_offload_8bit(model, value, name, None, folder, index, None)
    return {own: (load_offloaded_weight(os.path.join(folder, f"{own}.dat"), entry), None, own) for own, entry in index.items()}


def quantize_and_offload_8bit(model, param, param_name, new_dtype, offload_folder, offload_index, fp16_statistics):
    """Writes a parameter into a folder and its index, and leaves it on the device meta. The weight of a quantized layer is written as codes, those of 4 bits too,
    and with `fp16_statistics` it is codes already, of which these are the scales: of 8 bits they are written beside it, and stay in memory."""
    set_module_tensor_to_device(model, param_name, "cpu", value=param, dtype=new_dtype, fp16_statistics=fp16_statistics)
    owner, name = owner_of(model, param_name)
    offload_weight(owner._parameters[name], param_name, offload_folder, index=offload_index)
    if name == "weight" and "SCB" in owner._buffers:
        offload_weight(owner._buffers["SCB"], param_name.replace("weight", "SCB"), offload_folder, index=offload_index)
    set_module_tensor_to_device(model, param_name, "meta")


def stays_in_fp32(name, kept):
    return any(part == name or f"{part}." in name for part in kept)


def _fill(model, state, broadcast_from_rank0):
    """Copies weights into a model; tensors on the device meta become those of the files."""
    mine = model.state_dict(keep_vars=True)
    if broadcast_from_rank0:
        names = broadcast_object_list([list(state)])[0]
        state = {name: broadcast(state[name].clone() if name in state else torch.empty_like(mine[name], device="cpu"))
                 for name in names if name in mine}
    for name in [name for name in state if name in mine and mine[name].device == _META]:
        set_module_tensor_to_device(model, name, "cpu", value=state.pop(name))
    model.load_state_dict(state, strict=False)


def _rank():
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    return PartialState().process_index


def _is_of_torch_distributed(model, broadcast_from_rank0):
    """Whether torch's own process group has the tensors, or is to send them."""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return False
    return broadcast_from_rank0 or any(hasattr(parameter, "device_mesh") for parameter in model.parameters())


def _distribute(model, state, full_state_dict, broadcast_from_rank0):
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    options = StateDictOptions(full_state_dict=full_state_dict, broadcast_from_rank0=broadcast_from_rank0, strict=False)
    set_model_state_dict(model, state, options=options)
