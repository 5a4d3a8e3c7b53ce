"""The names of accelerate.utils."""

import contextlib
import functools
import gc
import os
import socket

from ..checkpoint import load, save
from ..collectives import (all_reduce, broadcast, broadcast_object_list, concatenate, convert_to_fp32, find_batch_size, gather,
                          gather_for_metrics, gather_object, gather_uneven, listify, pad_across_processes, pad_input_tensors,
                          recursively_apply, recv, reduce, send, send_to_device, slice_tensors)
from ..enums import (BaseEnum, DDPCommunicationHookType, DistributedType, LoggerType, PrecisionType, RNGType)
from ..handlers import (AutocastKwargs, DataLoaderConfiguration, DistributedDataParallelKwargs, GradientAccumulationPlugin,
                       GradScalerKwargs, InitProcessGroupKwargs, KwargsHandler, PowerSGDKwargs, ProjectConfiguration)
from ..memory import find_executable_batch_size, release_memory
from ..module import PreparedModule
from ..progress import tqdm
from ..random import set_seed, synchronize_rng_states
from ..state import PartialState

MODEL_NAME, SAFE_MODEL_NAME, OPTIMIZER_NAME, SCHEDULER_NAME, SAMPLER_NAME = "pytorch_model", "model", "optimizer", "scheduler", "sampler"
RNG_STATE_NAME, SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME = "random_states", "model.safetensors", "model.safetensors.index.json"


def wait_for_everyone():
    """A barrier."""
    PartialState().wait_for_everyone()


def extract_model_from_parallel(model, keep_fp32_wrapper=True, keep_torch_compile=True, recursive=False):
    """The model inside a prepared one."""
    return model.module if isinstance(model, PreparedModule) else model


def str_to_bool(value):
    """1 for y, yes, t, true, on, 1; 0 for n, no, f, false, off, 0."""
    text = value.lower()
    if text in ("y", "yes", "t", "true", "on", "1"):
        return 1
    if text in ("n", "no", "f", "false", "off", "0"):
        return 0
    raise ValueError(f"{value!r} is no truth value: expected yes, no, true, false, on, off, 1 or 0")


def parse_flag_from_env(key, default=False):
    return str_to_bool(os.environ.get(key, str(default))) == 1


def parse_choice_from_env(key, default="no"):
    return os.environ.get(key, str(default))


def get_int_from_env(env_keys, default):
    """The first of the variables that is a number of 0 or more."""
    return next((int(os.environ[key]) for key in env_keys if int(os.environ.get(key, -1)) >= 0), default)


@contextlib.contextmanager
def _environment_kept():
    kept = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(kept)


@contextlib.contextmanager
def patch_environment(**variables):
    """Environment variables inside, by their names in capitals."""
    with _environment_kept():
        os.environ.update({name.upper(): str(value) for name, value in variables.items()})
        yield


@contextlib.contextmanager
def clear_environment():
    """No environment variables inside."""
    with _environment_kept():
        os.environ.clear()
        yield


def purge_accelerate_environment(function):
    """A decorator: variables ACCELERATE_* are afterwards as they were before."""

    @functools.wraps(function)
    def run(*args, **kwargs):
        kept = {name: value for name, value in os.environ.items() if name.startswith("ACCELERATE_")}
        try:
            return function(*args, **kwargs)
        finally:
            for name in [name for name in os.environ if name.startswith("ACCELERATE_")]:
                del os.environ[name]
            os.environ.update(kept)

    return run


def is_port_in_use(port=29500):
    with socket.socket() as probe:
        return probe.connect_ex(("localhost", int(port))) == 0


def get_free_port():
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


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


def is_available(feature):
    """Whether the engine has a part: "ucx", "nccl", "cuda", "torchscript"."""
    from .. import capi

    return capi.accel_is_available(feature) == 1


def is_cuda_available():
    return is_available("cuda")


def is_bf16_available(ignore_tpu=False):
    """The CPU always computes in bfloat16."""
    return True


__all__ = sorted(name for name in globals() if not name.startswith("_") and name not in ("contextlib", "functools", "gc", "os", "socket"))
