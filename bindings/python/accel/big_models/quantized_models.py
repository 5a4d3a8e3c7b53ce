# SPDX-License-Identifier: Apache-2.0
"""Models of accel and of torch whose weights become codes of 4 or 8 bits by the settings of BnbQuantizationConfig."""

import copy
import logging

import torch

from .. import capi
from ..engine.torch_types import is_torch_model
from ..modules.argument_types import check_model
from ..training.prepared_forward import forward_of
from . import device_maps, quantized_layers
from .big_modeling import dispatch_model
from .checkpoint_loading import stays_in_fp32
from .module_tensors import find_tied_parameters
from .torch_module_tensors import owner_of
from .weights import load_checkpoint_in_model

_logger = logging.getLogger(__name__)
_STRATEGIES = ("auto", "balanced", "balanced_low_0", "sequential")


def load_and_quantize_model(model, bnb_quantization_config, weights_location=None, device_map=None, no_split_module_classes=None, max_memory=None,
                            offload_folder=None, offload_state_dict=False):
    """Quantizes the linear layers of a model by a BnbQuantizationConfig, in place: one that has its weights, or one without memory, which gets
    those of `weights_location`: mapped files, of which one weight at a time is in memory; of models of torch they may have the codes already. `device_map` is a
    map, or one of "auto", "balanced", "balanced_low_0" and "sequential", which find one that keeps to `max_memory`; without it the model comes to the device of the
    process. Codes may stay on the CPU and, as files of `offload_folder`, on the disk, those of 4 bits too. offload_state_dict has no effect: mapped files
    take no memory. The model."""
    config = bnb_quantization_config
    is_torch = is_torch_model(check_model("load_and_quantize_model", model))
    is_empty = any(parameter.device.type == "meta" for parameter in model.parameters())
    if is_empty and weights_location is None:
        raise RuntimeError("weights_location is None, and the model has no weights; expected the file or the folder that has them")
    if is_torch:
        config = _with_names(model, config)
        replace_with_bnb_layers(model, config, config.skip_modules + config.keep_in_fp32_modules)
    if not is_empty:
        _logger.warning("the model has its weights before it is quantized, which takes their memory; make it in init_empty_weights(), and give weights_location")
    elif is_torch:
        device_map = get_quantized_model_device_map(model, config, device_map, max_memory, no_split_module_classes)
        load_checkpoint_in_model(model, weights_location, device_map, offload_folder, config.torch_dtype, keep_in_fp32_modules=config.keep_in_fp32_modules)
    else:
        load_checkpoint_in_model(model, weights_location, {"": "cpu"})
    if not is_torch:
        model.quantize(**_settings(config))
    elif not is_empty:
        _convert_others(model, config)
    model.is_loaded_in_4bit, model.is_loaded_in_8bit = config.load_in_4bit, config.load_in_8bit
    if device_map is None:
        return model.to(_default_device(is_torch))
    if not is_torch or isinstance(device_map, str):
        device_map = device_maps.resolve(model, device_map, max_memory, no_split_module_classes, None, False)
    return dispatch_model(model, device_map, offload_dir=offload_folder)


def _default_device(is_torch):
    return str(capi.accel_device_default()) if is_torch else capi.accel_device_default()


def _with_names(model, config):
    """A copy of the settings with lists of names, each of a module or of a part of one's path."""
    config = copy.copy(config)
    config.keep_in_fp32_modules = list(config.keep_in_fp32_modules or ())
    paths = [path for path, _ in model.named_modules() if path]
    for field in ("skip_modules", "keep_in_fp32_modules"):
        strange = [name for name in getattr(config, field) or () if not any(_is_left_out(path, [name]) for path in paths)]
        if strange:
            raise ValueError(f"{field} has {', '.join(strange)}, which is no module of {type(model).__name__}; expected names of modules or parts of their paths")
    config.skip_modules = get_keys_to_not_convert(model) if config.skip_modules is None else list(config.skip_modules)
    return config


def _is_left_out(path, names):
    return any(path == name or path.rpartition(".")[2] == name or f"{name}." in path for name in names)


def _convert_others(model, config):
    """Converts what is not quantized; a tied parameter is float32 if one of its names is to be."""
    parameters = list(model.named_parameters(remove_duplicate=False))
    kept = {id(one) for name, one in parameters if stays_in_fp32(name, config.keep_in_fp32_modules)}
    for _, one in parameters:
        if one.is_floating_point():
            one.data = one.data.to(torch.float32 if id(one) in kept else config.torch_dtype)


def replace_with_bnb_layers(model, bnb_quantization_config, modules_to_not_convert=None, current_key_name=None):
    """Makes the linear layers of a model of torch quantized ones, which have bitsandbytes' names: in place, and at once those that have memory. Names of
    `modules_to_not_convert` are those of modules, the last parts of them, or parts of paths; `current_key_name` is the path of the model, as a list. The model."""
    prefix, left_out, found = "".join(f"{part}." for part in current_key_name or ()), modules_to_not_convert or (), {}
    if quantized_layers.has_layers(model) or forward_of(model) is not None:
        raise ValueError(f"{type(model).__name__} is prepared, or quantized already; expected a model with ordinary weights, before prepare()")
    for path, module in model.named_modules():
        # torch.nn.MultiheadAttention reads the weight of its layer, whose class says so
        if isinstance(module, torch.nn.Linear) and not isinstance(module, torch.nn.modules.linear.NonDynamicallyQuantizableLinear) and path:
            if "weight" in module._parameters and not _is_left_out(prefix + path, left_out):
                found[path] = module
    for group in find_tied_parameters(model):
        owners = {owner_of(model, name)[0] for name in group}
        if len(owners) > 1 and owners.intersection(found.values()):
            raise ValueError(f"{' and '.join(group)} are one tensor, and one of them would be quantized alone; expected them in skip_modules")
    for path, module in found.items():
        quantized_layers.convert(module, bnb_quantization_config, prefix + path)
    if not found:
        _logger.warning("%s has no linear layer to quantize: layers of other classes, such as GPT-2's Conv1D, stay as they are", type(model).__name__)
    return model


def get_quantized_model_device_map(model, bnb_quantization_config, device_map=None, max_memory=None, no_split_module_classes=None):
    """The device map of a model of torch that is to be loaded quantized: `device_map`, one that a strategy of its name finds for the sizes of the codes, or
    without it the device of the process. Codes of 4 bits may be on the CPU and the disk, too."""
    config = bnb_quantization_config
    if device_map is None:
        return {"": _default_device(True)}
    if not isinstance(device_map, str):
        return device_map
    if device_map not in _STRATEGIES:
        raise ValueError(f"device_map={device_map!r}: expected a map, or one of {', '.join(_STRATEGIES)}")
    special = {name: kind for names, kind in ((config.skip_modules, config.torch_dtype), (config.keep_in_fp32_modules, torch.float32))
               for name, _ in model.named_parameters() if any(part in name for part in names or ())}
    settings = {"special_dtypes": special, "no_split_module_classes": no_split_module_classes, "dtype": config.target_dtype}
    if device_map != "sequential":
        max_memory = device_maps.get_balanced_memory(model, max_memory, low_zero=device_map == "balanced_low_0", **settings)
    return device_maps.infer_auto_device_map(model, max_memory, **settings)


def get_keys_to_not_convert(model):
    """The names of the modules that load_and_quantize_model() leaves out unless skip_modules says others, of a model of accel or of torch: those whose
    weights are tied, and the last child, its head. A base model without tied weights has none."""
    check_model("get_keys_to_not_convert", model)
    tied = [name for group in find_tied_parameters(model) for name in group]
    if not tied and _is_base_model(model):
        return []
    last = [path for path, _ in model.named_modules() if path and "." not in path][-1:]
    return sorted({name.removesuffix(".weight").removesuffix(".bias") for name in [*tied, *last]})


def _is_base_model(model):
    """Whether it has no head, as its class or transformers' base_model_prefix says."""
    if not is_torch_model(model):
        return capi.accel_module_kind(model.handle).endswith("Model")
    return hasattr(model, "base_model_prefix") and not hasattr(model, model.base_model_prefix)


def _settings(config):
    """The fields of accel_quantization_options_t."""
    shared = {"dtype": config.torch_dtype, "skip_modules": config.skip_modules, "keep_in_fp32_modules": config.keep_in_fp32_modules}
    if config.load_in_8bit:
        return {"kind": "llm_int8", "outlier_threshold": float(config.llm_int8_threshold), **shared}
    return {"kind": config.bnb_4bit_quant_type, "has_double_quantization": config.bnb_4bit_use_double_quant,
            "compute_dtype": config.bnb_4bit_compute_dtype, **shared}
