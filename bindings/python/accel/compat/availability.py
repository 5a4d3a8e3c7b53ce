# SPDX-License-Identifier: Apache-2.0
"""Features that can be used here: parts of the engine, devices, packages of Python."""

import importlib.util
import os

# Packages of Python.
_PACKAGES = (
    "aim", "amdsmi", "bitsandbytes", "boto3", "clearml", "comet_ml", "datasets", "dvclive", "import_timer", "matplotlib", "mlflow",
    "pandas", "peft", "pynvml", "pytest", "schedulefree", "swanlab", "tensorboard", "timm", "torchdata", "torchvision",
    "tqdm", "trackio", "transformers", "triton", "wandb")
# Types of devices, of which the engine says whether one can be used.
_DEVICES = ("cuda", "mlu", "musa", "neuron", "npu", "sdaa", "xpu")
# Devices and packages of Accelerate that the engine does not use, so that it is never a reason to take another way.
_NEVER = ("4bit_bnb", "8bit_bnb", "bitsandbytes_multi_backend", "deepspeed", "habana_gaudi1", "megatron_lm", "msamp",
          "rocm", "sagemaker", "torchao", "transformer_engine", "transformer_engine_mxfp8", "xccl")


def is_available(feature):
    """Whether the engine has a part, "ucx", "nccl", "cuda_graphs" or "torchscript", or can use a type of devices: "cuda", "npu"."""
    from .. import capi

    return capi.accel_is_available(feature) == 1


def unavailable_reason(feature):
    """Why is_available() is False: one line, or None when it is available."""
    from .. import capi

    return capi.accel_unavailable_reason(feature) or None


def _device(name):
    return lambda check_device=False: is_available(name)  # the engine always asks the device


def is_mps_available(min_version="1.12"):
    from ..state.machine import is_torch_version

    return is_available("mps") and (importlib.util.find_spec("torch") is None or is_torch_version(">=", min_version))


def is_torch_xla_available(check_is_tpu=False, check_is_gpu=False):
    if check_is_tpu and check_is_gpu:
        raise ValueError("check_is_tpu and check_is_gpu exclude each other")
    kind = os.environ.get("PJRT_DEVICE")
    return is_available("xla") and (not check_is_tpu or kind == "TPU") and (not check_is_gpu or kind in ("GPU", "CUDA"))


def is_bf16_available(ignore_tpu=False):
    """The CPU always computes in bfloat16, and of GPUs those that torch says it of, where torch is there."""
    from .. import capi
    from ..engine.torch_types import torch_module

    torch = torch_module()
    if capi.accel_device_default().type == "cuda" and torch is not None:
        return torch.cuda.is_bf16_supported()
    return True


def is_fp16_available():
    """Training under fp16 needs an accelerator."""
    from .. import capi

    return capi.accel_device_default().type != "cpu"


def is_pippy_available():
    """Models run in stages without another package."""
    return True


def is_fp8_available():
    """Linear layers compute in 8 bits on every device: by the device's own products where it has them."""
    return True


def is_torch_distributed_available():
    """Whether the installed torch has torch.distributed. Jobs of libaccel do not need it."""
    if importlib.util.find_spec("torch") is None:
        return False
    import torch.distributed

    return torch.distributed.is_available()


def is_torchdata_stateful_dataloader_available():
    return importlib.util.find_spec("torchdata") is not None and importlib.util.find_spec("torchdata.stateful_dataloader") is not None


def is_weights_only_available():
    """Files are safetensors, of which nothing but weights is loaded."""
    return True


def _package(name):
    return lambda: importlib.util.find_spec(name) is not None


def _never(*_, **__):
    return False


def is_hpu_available(init_hccl=False):
    return is_available("hpu")  # whose collectives a backend of its plugin carries, which the state loads


def is_bnb_available(min_version=None):
    """Quantized layers of bitsandbytes are not used here, of whatever version."""
    return False


def is_numpy_available(min_version="1.25.0"):
    from ..state.machine import compare_versions

    return importlib.util.find_spec("numpy") is not None and compare_versions("numpy", ">=", min_version)


def is_rich_available():
    """Whether tracebacks are to be rich's: ACCELERATE_ENABLE_RICH asks for it, and the package is there."""
    from ..state.environment import parse_flag_from_env

    return importlib.util.find_spec("rich") is not None and parse_flag_from_env("ACCELERATE_ENABLE_RICH")


globals().update({f"is_{name}_available": _package(name) for name in _PACKAGES})
globals().update({f"is_{name}_available": _device(name) for name in _DEVICES})
globals().update({f"is_{name}_available": _never for name in _NEVER})
is_habana_gaudi1, is_lomo_available = _never, _package("lomo_optim")
__all__ = sorted(name for name in globals() if name.startswith("is_"))
