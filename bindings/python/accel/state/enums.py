"""Names that settings take; each is also the text itself: `DistributedType.MULTI_CPU == "MULTI_CPU"`."""

import enum


class EnumWithContains(enum.EnumMeta):
    def __contains__(cls, value):
        return value in (member.value for member in cls)


class BaseEnum(str, enum.Enum, metaclass=EnumWithContains):
    def __str__(self):
        return self.value

    @classmethod
    def list(cls):
        return [member.value for member in cls]


class _NamedEnum(BaseEnum):
    """Whose members are shown with their class, as the reference's of the same names: DistributedType.NO."""

    __str__ = enum.Enum.__str__


class DistributedType(_NamedEnum):
    NO, MULTI_CPU, MULTI_GPU, MULTI_NPU, MULTI_MLU = "NO", "MULTI_CPU", "MULTI_GPU", "MULTI_NPU", "MULTI_MLU"
    MULTI_SDAA, MULTI_MUSA, MULTI_XPU, MULTI_HPU, MULTI_NEURON = "MULTI_SDAA", "MULTI_MUSA", "MULTI_XPU", "MULTI_HPU", "MULTI_NEURON"
    DEEPSPEED, FSDP, XLA, MEGATRON_LM = "DEEPSPEED", "FSDP", "XLA", "MEGATRON_LM"


class ComputeEnvironment(_NamedEnum):
    LOCAL_MACHINE, AMAZON_SAGEMAKER = "LOCAL_MACHINE", "AMAZON_SAGEMAKER"


class SageMakerDistributedType(_NamedEnum):
    NO, DATA_PARALLEL, MODEL_PARALLEL = "NO", "DATA_PARALLEL", "MODEL_PARALLEL"


class FP8BackendType(_NamedEnum):
    NO, TE, MSAMP, AO = "NO", "TE", "MSAMP", "AO"


class CustomDtype(_NamedEnum):
    FP8, INT4, INT2 = "fp8", "int4", "int2"


class PrecisionType(BaseEnum):
    NO, FP8, FP16, BF16 = "no", "fp8", "fp16", "bf16"


class RNGType(BaseEnum):
    TORCH, CUDA, MLU, SDAA, MUSA = "torch", "cuda", "mlu", "sdaa", "musa"
    NPU, XLA, XPU, HPU, NEURON = "npu", "xla", "xpu", "hpu", "neuron"
    GENERATOR = "generator"


class LoggerType(BaseEnum):
    ALL, AIM, TENSORBOARD, WANDB, TRACKIO = "all", "aim", "tensorboard", "wandb", "trackio"
    COMETML, MLFLOW, CLEARML, DVCLIVE, SWANLAB = "comet_ml", "mlflow", "clearml", "dvclive", "swanlab"
    JSONL, CSV = "jsonl", "csv"  # of the engine, not of the reference


class DDPCommunicationHookType(BaseEnum):
    NO, FP16, BF16, POWER_SGD, BATCHED_POWER_SGD = "no", "fp16", "bf16", "power_sgd", "batched_power_sgd"


DynamoBackend = BaseEnum("DynamoBackend", {name: name for name in (
    "NO", "EAGER", "AOT_EAGER", "INDUCTOR", "AOT_TS_NVFUSER", "NVPRIMS_NVFUSER", "CUDAGRAPHS", "OFI", "FX2TRT", "ONNXRT", "TENSORRT",
    "AOT_TORCHXLA_TRACE_ONCE", "TORCHXLA_TRACE_ONCE", "TVM", "HPU_BACKEND", "NEURON")}, module=__name__)
