"""Distributed training through libaccel.

The names are those of Hugging Face Accelerate and, for models, optimizers and data, of torch. `import accel` is light: the
engine is loaded with the first name that needs it. `accel.capi` is the low layer, the functions of accel.h under their names.
"""

import importlib
import os
import sys

from . import missing, names

_NAMES = {
    "accelerator": ("Accelerator",),
    "availability": ("is_rich_available",),
    "autograd": ("enable_grad", "inference_mode", "no_grad"),
    "big_modeling": ("cpu_offload", "cpu_offload_with_hook", "disk_offload", "dispatch_model", "init_empty_weights", "init_on_device",
                     "load_checkpoint_and_dispatch"),
    "checkpoint": ("load", "save"),
    "creation": ("arange", "as_tensor", "empty", "from_dlpack", "full", "ones", "rand", "randint", "randn", "tensor", "zeros"),
    "data": ("DataLoader", "Dataset", "IterableDataset", "Subset", "TensorDataset", "TextDataset"),
    "data_loader": ("skip_first_batches",),
    "deepspeed": ("DeepSpeedPlugin",),
    "device": ("Device",),
    "device_maps": ("infer_auto_device_map",),
    "dtypes": ("DType", "bfloat16", "bool", "float16", "float32", "float64", "int16", "int32", "int64", "int8", "uint8"),
    "enums": ("DDPCommunicationHookType", "DistributedType", "LoggerType", "PrecisionType", "RNGType"),
    "errors": ("Error",),
    "fsdp": ("FullyShardedDataParallelPlugin",),
    "gathered_parameters": ("GatheredParameters",),
    "handlers": ("AutocastKwargs", "DataLoaderConfiguration", "DistributedDataParallelKwargs", "GradScalerKwargs",
                 "GradientAccumulationPlugin", "InitProcessGroupKwargs", "PowerSGDKwargs", "ProjectConfiguration"),
    "launchers": ("debug_launcher", "notebook_launcher"),
    "local_sgd": ("LocalSGD",),
    "memory": ("find_executable_batch_size", "release_memory"),
    "objects": ("allow_pickle",),
    "own_gradients": ("OwnGradients",),
    "parallelism_config": ("Mesh", "ParallelismConfig"),
    "profiling": ("ProfileKwargs",),
    "progress": ("ProgressBar", "tqdm"),
    "random": ("Generator", "set_seed", "synchronize_rng_states"),
    "registered_parameters": ("RegisteredParameters", "register_parameters"),
    "state": ("AcceleratorState", "GradientState", "Group", "PartialState"),
    "tensors": ("Tensor",),
    "tracking": ("GeneralTracker",),
    "weights": ("load_checkpoint_in_model",),
    "work": ("Work",),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}
_MODULES = ("big_modeling", "capi", "collectives", "data", "data_loader", "device", "dtypes", "enums", "errors", "functional", "handlers", "hooks", "launchers", "logging",
            "lr_scheduler", "nn", "ops", "optim", "parallelism_config", "profiling", "progress", "random", "state", "tracking", "utils")

names.add_modules()
if os.environ.get("ACCELERATE_ENABLE_RICH") and importlib.import_module(f"{__name__}.availability").is_rich_available():
    importlib.import_module(f"{__name__}.utils.rich")

__version__ = "0.1.0"
__all__ = sorted(_HOMES) + ["capi", "nn", "ops", "optim", "utils"]


def __getattr__(name):
    if name in _HOMES:
        value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    elif name in _MODULES:
        value = importlib.import_module(f"{__name__}.{name}")
    else:
        value = sys.modules.get(f"{__name__}.{name}") or missing.stand_in(name)
        if value is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *_HOMES, *_MODULES})
