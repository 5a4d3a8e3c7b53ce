"""Models of accel whose weights become codes of 4 or 8 bits by the settings of BnbQuantizationConfig."""

import logging

from .. import capi
from ..engine.torch_types import is_torch_model
from ..modules.argument_types import check_model
from . import device_maps
from .big_modeling import dispatch_model
from .module_tensors import find_tied_parameters
from .weights import load_checkpoint_in_model

_logger = logging.getLogger(__name__)


def load_and_quantize_model(model, bnb_quantization_config, weights_location=None, device_map=None, no_split_module_classes=None, max_memory=None,
                            offload_folder=None, offload_state_dict=False):
    """Quantizes the linear layers of a model of accel by a BnbQuantizationConfig, in place: one that has its weights, or one without memory, which gets
    those of `weights_location`: mapped files, of which one weight at a time is in memory. `device_map` is a map, or one of "auto", "balanced",
    "balanced_low_0" and "sequential", which find one that keeps to `max_memory`; without it the model comes to the device of the process. Codes may stay
    on the CPU and, as files of `offload_folder`, on the disk, those of 4 bits too. offload_state_dict has no effect: mapped files take no memory. The
    model."""
    if is_torch_model(check_model("load_and_quantize_model", model)):
        raise NotImplementedError("load_and_quantize_model: quantization of torch's models is not in libaccel yet; expected a model of accel, such as that "
                                  "of accel.nn.from_folder()")
    if any(parameter.device.type == "meta" for parameter in model.parameters()):
        if weights_location is None:
            raise RuntimeError("weights_location is None, and the model has no weights; expected the file or the folder that has them")
        load_checkpoint_in_model(model, weights_location, {"": "cpu"})
    else:
        _logger.warning("the model has its weights before it is quantized, which takes their memory; make it in init_empty_weights(), and give weights_location")
    config = bnb_quantization_config
    model.quantize(**_settings(config))
    model.is_loaded_in_4bit, model.is_loaded_in_8bit = config.load_in_4bit, config.load_in_8bit
    if device_map is None:
        return model.to(capi.accel_device_default())
    device_map = device_maps.resolve(model, device_map, max_memory, no_split_module_classes, None, False)
    return dispatch_model(model, device_map, offload_dir=offload_folder)


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
