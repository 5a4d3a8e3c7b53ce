"""The names of accelerate.utils."""

import gc

from .. import missing
from ..availability import *  # noqa: F403
from ..checkpoint import load, save
from ..collectives import (all_reduce, broadcast, broadcast_object_list, concatenate, convert_to_fp32, find_batch_size, gather,
                          gather_for_metrics, gather_object, gather_uneven, listify, pad_across_processes, pad_input_tensors,
                          recursively_apply, recv, reduce, send, send_to_device, slice_tensors)
from ..dtypes import dtype
from ..enums import (BaseEnum, DDPCommunicationHookType, DistributedType, LoggerType, PrecisionType, RNGType)
from ..environment import (clear_environment, convert_dict_to_env_variables, get_free_port, get_int_from_env, is_port_in_use,
                           parse_choice_from_env, parse_flag_from_env, patch_environment, purge_accelerate_environment, str_to_bool)
from ..handlers import (AORecipeKwargs, AutocastKwargs, DataLoaderConfiguration, DistributedDataParallelKwargs, GradientAccumulationPlugin,
                        GradScalerKwargs, InitProcessGroupKwargs, KwargsHandler, MSAMPRecipeKwargs, PowerSGDKwargs, ProjectConfiguration,
                        TERecipeKwargs)
from ..memory import find_executable_batch_size, release_memory
from ..module import PreparedModule
from ..progress import tqdm
from ..random import set_seed, synchronize_rng_state, synchronize_rng_states
from ..state import PartialState
from ..tensor_type import is_tensor as is_torch_tensor
from ..values import like as honor_type

# Names of files; what save_state() writes is in docs/checkpoints.md.
SAFE_MODEL_NAME, OPTIMIZER_NAME, SCHEDULER_NAME, SAMPLER_NAME = "model", "optimizer", "scheduler", "sampler"
RNG_STATE_NAME, SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME = "random_states", "model.safetensors", "model.safetensors.index.json"
MODEL_NAME = "pytorch_model"


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


def get_module_children_bottom_up(model):
    """The modules of a model, children before their parents."""
    return [module for child in model.children() for module in get_module_children_bottom_up(child)] + [model]


def dtype_byte_size(kind):
    """Bytes of an element."""
    return dtype(kind).itemsize


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


__all__ = sorted(name for name in globals() if not name.startswith("_") and name not in ("gc", "missing"))
