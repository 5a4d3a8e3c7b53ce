"""Names of files in checkpoints, and the values that settings of the reference take."""

from ..machine import COMPARISONS as STR_OPERATION_TO_FUNC
from ..names import resolver

MODEL_NAME, SAFE_MODEL_NAME, OPTIMIZER_NAME, SCHEDULER_NAME, SAMPLER_NAME = "pytorch_model", "model", "optimizer", "scheduler", "sampler"
RNG_STATE_NAME, SCALER_NAME, PROFILE_PATTERN_NAME = "random_states", "scaler.pt", "profile_{suffix}.json"
WEIGHTS_NAME, WEIGHTS_PATTERN_NAME, WEIGHTS_INDEX_NAME = (
    "pytorch_model.bin", "pytorch_model{suffix}.bin", "pytorch_model.bin.index.json")
SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_PATTERN_NAME, SAFE_WEIGHTS_INDEX_NAME = (
    "model.safetensors", "model{suffix}.safetensors", "model.safetensors.index.json")
TORCH_DISTRIBUTED_OPERATION_TYPES = ["MULTI_GPU", "MULTI_CPU"]  # those of the reference that there are here
TORCH_LAUNCH_PARAMS: list = []  # `accel launch` has settings of its own
CUDA_DISTRIBUTED_TYPES = ["MULTI_GPU"]
USE_TORCH_XLA = False

FSDP_MODEL_NAME = "pytorch_model_fsdp"
FSDP_SHARDING_STRATEGY = ["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"]
FSDP_AUTO_WRAP_POLICY = ["TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"]
FSDP_BACKWARD_PREFETCH = ["BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"]
FSDP_STATE_DICT_TYPE = ["FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT"]
FSDP2_STATE_DICT_TYPE = ["SHARDED_STATE_DICT", "FULL_STATE_DICT"]
DEEPSPEED_MULTINODE_LAUNCHERS = ["pdsh", "standard", "openmpi", "mvapich", "mpich", "nossh", "slurm"]
TORCH_DYNAMO_MODES = ["default", "reduce-overhead", "max-autotune"]
SAGEMAKER_PARALLEL_EC2_INSTANCES = ["ml.p3.16xlarge", "ml.p3dn.24xlarge", "ml.p4dn.24xlarge"]
# The first versions with something.
FSDP_PYTORCH_VERSION, FSDP2_PYTORCH_VERSION, DTENSOR_PYTORCH_VERSION = "2.1.0", "2.6.0", "2.5.0"
ELASTIC_LOG_LINE_PREFIX_TEMPLATE_PYTORCH_VERSION, XPU_PROFILING_AVAILABLE_PYTORCH_VERSION = "2.2.0", "2.4.0"
MITA_PROFILING_AVAILABLE_PYTORCH_VERSION, BETA_TP_AVAILABLE_PYTORCH_VERSION = "2.1.0", "2.3.0"
BETA_TP_AVAILABLE_TRANSFORMERS_VERSION, BETA_CP_AVAILABLE_PYTORCH_VERSION = "4.52.0", "2.6.0"
BETA_SP_AVAILABLE_DEEPSPEED_VERSION = "0.18.2"
SAGEMAKER_PYTORCH_VERSION, SAGEMAKER_PYTHON_VERSION, SAGEMAKER_TRANSFORMERS_VERSION = "1.10.2", "py38", "4.17.0"


def _layers_for_upcasting():
    try:
        from torch import nn
    except ImportError:
        return ()
    return (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d, nn.Linear)


def __getattr__(name):
    return _layers_for_upcasting() if name == "SUPPORTED_PYTORCH_LAYERS_FOR_UPCASTING" else resolver(__name__)(name)


__all__ = ["STR_OPERATION_TO_FUNC"]
