# SPDX-License-Identifier: Apache-2.0
"""Single parameters and buffers of torch models: their names, their devices, and which of them are the same. module_tensors.py describes the
functions that it has too."""

import inspect
import logging

import torch

from ..state.memory import clear_device_cache
from .quantized_layers import QuantizedLinear

_logger = logging.getLogger(__name__)
_META = torch.device("meta")


def owner_of(module, path):
    """The module inside of another one that has the tensor of this path, and the tensor's own name."""
    name = path
    while "." in name and name not in module._buffers:  # scales of quantized layers have dots in their names
        part, _, name = name.partition(".")
        module = getattr(module, part)
        if module is None:
            raise ValueError(f"{path!r}: the module {part!r} is None; expected the path of a parameter or a buffer")
    return module, name


def place_of(module, name):
    """The dict of a module that has a parameter or a buffer."""
    place = module._buffers if name in module._buffers else module._parameters
    if place.get(name) is None:
        there = ", ".join([*module._parameters, *module._buffers]) or "none"
        raise ValueError(f"a {type(module).__name__} has no parameter and no buffer {name!r}; there are: {there}")
    return place


def named_module_tensors(module, include_buffers=True, recurse=False, remove_non_persistent=False):
    yield from module.named_parameters(recurse=recurse)
    if include_buffers:
        left_out = get_non_persistent_buffers(module, recurse, fqns=True) if remove_non_persistent else ()
        yield from (pair for pair in module.named_buffers(recurse=recurse) if pair[0] not in left_out)


def get_non_persistent_buffers(module, recurse=False, fqns=False):
    modules = module.named_modules() if recurse else [("", module)]
    return {f"{path}.{name}" if fqns and path else name for path, one in modules for name in one._non_persistent_buffers_set}


def check_device_same(first_device, second_device):
    """Whether two devices are the same one; an accelerator without index is the first of its kind."""
    def complete(device):
        return torch.device(device.type, 0) if device.index is None and device.type not in ("cpu", "meta") else device

    return complete(first_device) == complete(second_device)


def id_tensor_storage(tensor):
    """The key that all tensors of one memory share: device, address and bytes of the storage."""
    storage = tensor.untyped_storage()
    return tensor.device, storage.data_ptr(), storage.nbytes()


def kind_of(dtype):
    """A dtype given as such or by its name."""
    return getattr(torch, dtype.replace("torch.", "")) if isinstance(dtype, str) else dtype


def parameter_like(former, data):
    """A parameter of the class of another one, with its attributes, and other data."""
    made = type(former)(data, requires_grad=former.requires_grad)
    made.__dict__.update(former.__dict__)
    return made


def set_module_tensor_to_device(module, tensor_name, device, value=None, dtype=None, fp16_statistics=None, tied_params_map=None,
                                non_blocking=False, clear_cache=True):
    module, name = owner_of(module, tensor_name)
    place = place_of(module, name)
    former = place[name]
    target = torch.device(device)
    loaded = _loaded_of(tied_params_map, (former if value is None else value, former), device)
    if loaded is not None:
        place[name] = loaded
        return
    if value is None and former.device == _META and target != _META:
        raise ValueError(f"{tensor_name} is on the device meta, without memory: expected a value to put on {device}")
    if isinstance(module, QuantizedLinear) and name in module.code_names:
        value = None if target == _META else value
        if value is not None and name == "weight" and (value.is_floating_point() or fp16_statistics is not None):
            rows = {} if fp16_statistics is None else {"SCB": fp16_statistics.to(target), "weight_format": torch.zeros((), dtype=torch.uint8, device=target)}
            module.set_weight({name: value.to(target), **rows}, tensor_name)
            return
        dtype = None  # codes and scales keep theirs
    with torch.no_grad():
        data = former if value is None else torch.as_tensor(value)
        if value is not None:
            data = _fitting(data, former, name, dtype)
        elif dtype is not None and target == _META and _is_castable(former):
            data = data.to(kind_of(dtype))
        data = data.to(target, non_blocking=non_blocking)
    if place is module._buffers or data is former:
        place[name] = data
    else:
        place[name] = parameter_like(former, data)
    if fp16_statistics is not None:
        place[name].SCB = fp16_statistics.to(target, non_blocking=non_blocking)
    if clear_cache and target.type not in ("cpu", "meta"):
        clear_device_cache()
    for source in (former, value):
        if tied_params_map is not None and isinstance(source, torch.Tensor) and source.data_ptr() in tied_params_map:
            tied_params_map[source.data_ptr()].setdefault(device, place[name])
            break


def _loaded_of(tied_params_map, sources, device):
    """The copy of a tied tensor that is on the device already; None if nothing is."""
    for source in sources if tied_params_map else ():
        if isinstance(source, torch.Tensor) and device in tied_params_map.get(source.data_ptr(), ()):
            return tied_params_map[source.data_ptr()][device]
    return None


def _is_castable(tensor):
    return tensor.is_floating_point() or tensor.is_complex()


def _fitting(value, former, name, dtype):
    if value.shape != former.shape:
        # Programs match these words, which are Accelerate's.
        raise ValueError(f'Trying to set a tensor of shape {value.shape} in "{name}" (which has shape {former.shape}), this looks incorrect.')
    if dtype is None:
        return value.to(former.dtype)
    return value.to(kind_of(dtype)) if _is_castable(value) else value


def find_tied_parameters(model, **_):
    return _names_of_one(model.named_parameters(remove_duplicate=False))


def find_shared_buffers(model):
    return _names_of_one(model.named_buffers(remove_duplicate=False))


def _names_of_one(tensors):
    names: dict = {}
    for name, tensor in tensors:
        names.setdefault(id(tensor), []).append(name)
    return [sorted(group) for group in names.values() if len(group) > 1]


def retie_parameters(model, tied_params):
    for group in tied_params:
        owners = [owner_of(model, path) for path in group]
        whole = next((value for value in (getattr(*owner) for owner in owners) if value.device != _META), None)
        if whole is not None:
            for owner, name in owners:
                setattr(owner, name, whole)


def check_tied_parameters_in_config(model):
    """Whether a model of transformers is one with tied weights, by its configuration."""
    if "PreTrainedModel" not in [kind.__name__ for kind in inspect.getmro(type(model))]:
        return False
    config = getattr(model, "config", None)
    decoder = config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config
    ties_embeddings = getattr(decoder, "tie_word_embeddings", False) and model.get_output_embeddings() is not None
    ties_decoder = getattr(config, "is_encoder_decoder", False) and getattr(config, "tie_encoder_decoder", False)
    return bool(ties_embeddings or ties_decoder or any(hasattr(module, "_tie_weights") for module in model.modules()))


def check_tied_parameters_on_same_device(tied_params, device_map):
    """Warns of tied parameters that a device map puts on different devices."""
    for group in tied_params:
        devices = {path: device_of(path, device_map) for path in group}
        if len(set(devices.values())) > 1:
            _logger.warning("Tied parameters are on different devices: %s; put them on one in the device map, or use device_map=\"auto\"", devices)


def device_of(path, device_map):
    """The device of a tensor: that of the longest beginning of its path in the map."""
    place = path
    while place and place not in device_map:
        place = place.rpartition(".")[0]
    if place not in device_map:
        raise ValueError(f"the device map has no device for {path}: expected it, a module around it, or \"\" for everything else")
    return device_map[place]
