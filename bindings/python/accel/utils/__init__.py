"""The names of accelerate.utils."""

import gc
import logging

from .. import missing
from ..availability import *  # noqa: F403
from ..checkpoint import load, save
from ..collectives import (TensorInformation, all_reduce, broadcast, broadcast_object_list, concatenate, convert_outputs_to_fp32,
                          convert_to_fp32, copy_tensor_to_devices, find_batch_size, find_device, gather, gather_for_metrics, gather_object,
                          gather_uneven, get_data_structure, get_shape, ignorant_find_batch_size, initialize_tensors,
                          is_tensor_information, listify, pad_across_processes, pad_input_tensors, recursively_apply, recv, reduce, send,
                          send_to_device, slice_tensors)
from ..dtypes import dtype
from ..enums import (BaseEnum, ComputeEnvironment, CustomDtype, DDPCommunicationHookType, DistributedType, FP8BackendType, LoggerType,
                     PrecisionType, RNGType, SageMakerDistributedType)
from ..environment import (clear_environment, convert_dict_to_env_variables, get_free_port, get_int_from_env, is_port_in_use,
                           parse_choice_from_env, parse_flag_from_env, patch_environment, purge_accelerate_environment, str_to_bool)
from ..handlers import (AutocastKwargs, DataLoaderConfiguration, DistributedDataParallelKwargs, GradientAccumulationPlugin,
                        GradScalerKwargs, InitProcessGroupKwargs, KwargsHandler, PowerSGDKwargs, ProjectConfiguration)
from ..machine import (CPUInformation, are_libraries_initialized, check_cuda_fp8_capability, check_cuda_p2p_ib_support, check_os_kernel,
                       compare_versions, get_cpu_distributed_information, get_current_device_type, get_driver_version, get_gpu_info)
from ..memory import find_executable_batch_size, release_memory
from ..module import PreparedModule
from ..progress import tqdm
from ..random import set_seed, synchronize_rng_state, synchronize_rng_states
from ..state import PartialState
from ..tensor_type import is_tensor as is_torch_tensor
from ..values import like as honor_type

# Names of files in the reference.
MODEL_NAME, SAFE_MODEL_NAME, OPTIMIZER_NAME, SCHEDULER_NAME, SAMPLER_NAME = "pytorch_model", "model", "optimizer", "scheduler", "sampler"
RNG_STATE_NAME, SCALER_NAME = "random_states", "scaler.pt"
WEIGHTS_NAME, WEIGHTS_PATTERN_NAME, WEIGHTS_INDEX_NAME = (
    "pytorch_model.bin", "pytorch_model{suffix}.bin", "pytorch_model.bin.index.json")
SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_PATTERN_NAME, SAFE_WEIGHTS_INDEX_NAME = (
    "model.safetensors", "model{suffix}.safetensors", "model.safetensors.index.json")
TORCH_DISTRIBUTED_OPERATION_TYPES = ["MULTI_GPU", "MULTI_CPU"]  # those of the reference that there are here
TORCH_LAUNCH_PARAMS: list = []  # `accel launch` has settings of its own


class CannotPadNestedTensorWarning(UserWarning):
    """What the reference warns with; nested tensors are an error here."""


def clean_state_dict_for_safetensors(state_dict):
    """Without the later names of tensors that share memory, and with all of them contiguous."""
    first: dict = {}
    cleaned = {}
    for name, tensor in state_dict.items():
        if tensor.numel() == 0 or first.setdefault((tensor.data_ptr(), tensor.shape), name) == name:
            cleaned[name] = tensor.contiguous()
    dropped = state_dict.keys() - cleaned.keys()
    if dropped:
        logging.getLogger(__name__).warning("left out, for they share memory with others: %s", ", ".join(sorted(dropped)))
    return cleaned


def _nothing_of_the_kind(*_, **__):
    """No: there is nothing of the kind in libaccel."""
    return False


has_4bit_bnb_layers = has_ao_layers = has_compiled_regions = has_transformer_engine_layers = _nothing_of_the_kind
is_compiled_module = is_peft_model = model_has_dtensor = _nothing_of_the_kind


def wait_for_everyone():
    """A barrier."""
    PartialState().wait_for_everyone()


def extract_model_from_parallel(model, keep_fp32_wrapper=True, keep_torch_compile=True, recursive=False):
    """The model inside a prepared one."""
    return model.module if isinstance(model, PreparedModule) else model


def merge_dicts(source, destination):
    """Puts a nested dict into another one."""
    for key, value in source.items():
        if isinstance(value, dict):
            merge_dicts(value, destination.setdefault(key, {}))
        else:
            destination[key] = value
    return destination


def convert_bytes(size):
    for unit in ("bytes", "KB", "MB", "GB", "TB"):
        if size < 1024:
            return f"{round(size, 2)} {unit}"
        size /= 1024
    return f"{round(size, 2)} PB"


def clear_device_cache(garbage_collection=False):
    if garbage_collection:
        gc.collect()
    release_memory()


def is_namedtuple(value):
    return isinstance(value, tuple) and hasattr(value, "_fields")


def get_pretty_name(thing):
    """The name of a class or function, or of the class of an object."""
    return getattr(thing, "__qualname__", None) or getattr(thing, "__name__", None) or type(thing).__name__


def recursive_getattr(thing, path):
    """`thing.a.b` for "a.b"."""
    for name in path.split("."):
        thing = getattr(thing, name)
    return thing


def get_module_children_bottom_up(model, return_fqns=False):
    """The modules of a model, children before their parents; with `return_fqns` pairs of path and module."""
    found, waiting = [], [("", model)]
    while waiting:
        path, module = waiting.pop()
        found.append((path, module))
        waiting += [(f"{path}.{name}" if path else name, child) for name, child in module.named_children()]
    return [pair if return_fqns else pair[1] for pair in reversed(found)]


def dtype_byte_size(kind):
    """Bytes of an element, as they are counted in the sizes of models: a bool is a bit."""
    parts = {"bool": 1 / 8, CustomDtype.INT2: 1 / 4, CustomDtype.INT4: 1 / 2, CustomDtype.FP8: 1}
    return parts[kind] if kind in parts else dtype(kind).itemsize


def convert_file_size_to_int(size):
    """Bytes of 5, "5GB" or "5GiB"."""
    units = {"GIB": 2**30, "MIB": 2**20, "KIB": 2**10, "GB": 10**9, "MB": 10**6, "KB": 10**3}
    if isinstance(size, int) and size >= 0:
        return size
    unit = next((unit for unit in units if str(size).upper().endswith(unit)), None)
    if unit is None or not str(size)[:-len(unit)].replace(".", "", 1).isdigit():
        raise ValueError(f"{size!r} is no size: expected a number of bytes, or one with GB, MB, KB, GiB, MiB or KiB")
    return int(float(str(size)[:-len(unit)]) * units[unit]) // (8 if str(size).endswith("b") else 1)


def __getattr__(name):
    missing.check_name(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = sorted(name for name in globals() if not name.startswith("_") and name not in ("gc", "logging", "missing"))
