# SPDX-License-Identifier: Apache-2.0
"""Models that a device map has spread over devices, or whose weights are offloaded: which can be trained, and their state dicts."""

from ..engine.torch_types import is_torch_model
from ..state.environment import parse_flag_from_env


def is_spread(model):
    """Whether a model, or a part of it, is spread over several devices."""
    return any(len(getattr(module, "hf_device_map", ())) > 1 for module in model.modules())


def require_trainable(model, num_processes):
    """Whether a model is spread. One that is spread is not trained by several ranks, unless ACCELERATE_BYPASS_DEVICE_MAP=true asks for it; one
    with quantized weights that are offloaded is not trained at all."""
    spread = is_spread(model)
    if spread and num_processes > 1 and not parse_flag_from_env("ACCELERATE_BYPASS_DEVICE_MAP"):
        raise ValueError(f"{type(model).__name__} was loaded with a device map over several devices, and cannot be trained by "
                         f"{num_processes} ranks; start the program with one process (--num_processes 1)")
    quantized = getattr(model, "is_loaded_in_8bit", False) or getattr(model, "is_loaded_in_4bit", False)
    devices = set((getattr(model, "hf_device_map", None) or {}).values()) if quantized else ()
    is_of_bitsandbytes = any(type(module).__module__.startswith("bitsandbytes.") for module in model.modules())
    away = sorted({str(device) for device in devices}.intersection(("cpu", "disk") if is_of_bitsandbytes else ("disk",)))
    if away:
        raise ValueError(f"{type(model).__name__} has weights in 8 or 4 bits with CPU or disk offload ({', '.join(away)} in its device map), and "
                         "cannot be trained; load it on the accelerator as a whole")
    return spread


def has_offloaded(model):
    """Whether weights of a model of torch are put away between its forwards."""
    return is_torch_model(model) and any(_align_devices().has_offloaded_params(module) for module in model.modules())


def state_dict_of_offloaded(model):
    return _align_devices().get_state_dict_offloaded_model(model)


def _align_devices():
    from ..big_models import align_devices  # imports torch

    return align_devices
