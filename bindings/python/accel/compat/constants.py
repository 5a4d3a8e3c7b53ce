# SPDX-License-Identifier: Apache-2.0
"""Names of files in checkpoints, and the values that settings of Accelerate take."""

from .. import capi
from ..commands.config.config_args import SAGEMAKER_PYTHON_VERSION, SAGEMAKER_PYTORCH_VERSION, SAGEMAKER_TRANSFORMERS_VERSION  # noqa: F401
from ..generated.choices import CHOICES
from ..state.machine import COMPARISONS as STR_OPERATION_TO_FUNC

MODEL_NAME, SAFE_MODEL_NAME = capi.ACCEL_MODEL_NAME, capi.ACCEL_SAFE_MODEL_NAME
OPTIMIZER_NAME, SCHEDULER_NAME, SAMPLER_NAME = capi.ACCEL_OPTIMIZER_NAME, capi.ACCEL_SCHEDULER_NAME, capi.ACCEL_SAMPLER_NAME
RNG_STATE_NAME, SCALER_NAME, PROFILE_PATTERN_NAME = capi.ACCEL_RNG_STATE_NAME, capi.ACCEL_SCALER_NAME, capi.ACCEL_PROFILE_PATTERN_NAME
WEIGHTS_NAME, WEIGHTS_INDEX_NAME = capi.ACCEL_WEIGHTS_NAME, capi.ACCEL_WEIGHTS_INDEX_NAME
SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME = capi.ACCEL_SAFE_WEIGHTS_NAME, capi.ACCEL_SAFE_WEIGHTS_INDEX_NAME
WEIGHTS_PATTERN_NAME, SAFE_WEIGHTS_PATTERN_NAME = capi.ACCEL_WEIGHTS_PATTERN_NAME, capi.ACCEL_SAFE_WEIGHTS_PATTERN_NAME
# Kinds of jobs: those that may compute on CUDA, and those of several ranks. Scripts look for distributed_type in them.
CUDA_DISTRIBUTED_TYPES = ["DEEPSPEED", "MULTI_GPU", "FSDP", "MEGATRON_LM", "TP"]
TORCH_DISTRIBUTED_OPERATION_TYPES = [*CUDA_DISTRIBUTED_TYPES, "MULTI_NPU", "MULTI_MLU", "MULTI_SDAA", "MULTI_MUSA", "MULTI_XPU", "MULTI_CPU",
                                     "MULTI_HPU", "MULTI_NEURON"]
# Settings of torchrun, by which scripts tell them from their own.
TORCH_LAUNCH_PARAMS = """nnodes nproc_per_node rdzv_backend rdzv_endpoint rdzv_id rdzv_conf standalone max_restarts monitor_interval start_method
    role module m no_python run_path log_dir r redirects t tee node_rank master_addr master_port""".split()
USE_TORCH_XLA = False

FSDP_MODEL_NAME = "pytorch_model_fsdp"
FSDP_SHARDING_STRATEGY, FSDP_AUTO_WRAP_POLICY, FSDP_BACKWARD_PREFETCH, FSDP_STATE_DICT_TYPE = (
    [name.upper() for name in CHOICES[kind]] for kind in ("sharding_strategy", "auto_wrap_policy", "backward_prefetch", "state_dict_type"))
FSDP2_STATE_DICT_TYPE = ["SHARDED_STATE_DICT", "FULL_STATE_DICT"]
DEEPSPEED_MULTINODE_LAUNCHERS = ["pdsh", "standard", "openmpi", "mvapich", "mpich", "nossh", "slurm"]
TORCH_DYNAMO_MODES = ["default", "reduce-overhead", "max-autotune"]
SAGEMAKER_PARALLEL_EC2_INSTANCES = ["ml.p3.16xlarge", "ml.p3dn.24xlarge", "ml.p4dn.24xlarge"]
# The first versions with something.
FSDP_PYTORCH_VERSION, FSDP2_PYTORCH_VERSION, DTENSOR_PYTORCH_VERSION = "2.1.0.a0+32f93b1", "2.6.0", "2.5.0"
ELASTIC_LOG_LINE_PREFIX_TEMPLATE_PYTORCH_VERSION, XPU_PROFILING_AVAILABLE_PYTORCH_VERSION = "2.2.0", "2.4.0"
MITA_PROFILING_AVAILABLE_PYTORCH_VERSION, BETA_TP_AVAILABLE_PYTORCH_VERSION = "2.1.0", "2.3.0"
BETA_TP_AVAILABLE_TRANSFORMERS_VERSION, BETA_CP_AVAILABLE_PYTORCH_VERSION = "4.52.0", "2.6.0"
BETA_SP_AVAILABLE_DEEPSPEED_VERSION = "0.18.2"


def _layers_for_upcasting():
    try:
        from torch import nn
    except ImportError:
        return ()
    return (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d, nn.Linear)


def __getattr__(name):
    if name != "SUPPORTED_PYTORCH_LAYERS_FOR_UPCASTING":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _layers_for_upcasting()


__all__ = ["STR_OPERATION_TO_FUNC"]
