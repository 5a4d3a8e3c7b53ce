# SPDX-License-Identifier: Apache-2.0
"""The handlers of ParallelismConfig: how layers and sequences are split along an axis of the mesh."""

import dataclasses

from .. import capi
from ..generated import settings
from ..state.handlers import whole_number
from ..state.options import fill, read_variables


@dataclasses.dataclass
class TorchTensorParallelConfig(settings.TorchTensorParallelConfig):
    """How the layers of prepared models are split along tp: by fields of accel_tensor_parallel_options_t (docs/parallelism.md). None: from their
    variables, the configuration file, or the default. prepare_model(tensor_parallel={...}) replaces fields for one model. With
    enable_async_tp, which Accelerate ignores, exchanges run beside products, as with overlap "yes", unless `overlap` says otherwise."""

    def __post_init__(self):
        read_variables(self, **dict.fromkeys(self._variables))  # what no variable says, the engine decides

    def to_engine(self, changed: "dict | None" = None):
        """The engine's options for a model, some fields with other values."""
        given = {name: value for name, value in vars(self).items() if name != "enable_async_tp"}
        if self.enable_async_tp and self.overlap is None:
            given["overlap"] = "yes"
        return fill(capi.accel_tensor_parallel_options_t(), {**given, **(changed or {})})


@dataclasses.dataclass
class TorchTensorParallelPlugin(settings.TorchTensorParallelPlugin):
    """Accelerate's former name of tp_size: Accelerator(torch_tp_plugin=...) takes it for ParallelismConfig(tp_size=...), with a
    FutureWarning. The program reads torch_device_mesh."""

    def __post_init__(self):
        self.tp_size = whole_number("tp_size", self.tp_size, 1)


@dataclasses.dataclass
class TorchContextParallelConfig(settings.TorchContextParallelConfig):
    """How ranks that split sequences along cp exchange keys and values: "allgather" or "alltoall". None: from
    PARALLELISM_CONFIG_CP_COMM_STRATEGY, else "allgather"."""

    def __post_init__(self):
        read_variables(self, "cp_comm_strategy")
        if self.cp_comm_strategy not in ("allgather", "alltoall"):
            raise ValueError(f"Invalid cp_comm_strategy: {self.cp_comm_strategy}; expected allgather or alltoall")


_ATTENTION = ("flash_attention_2", "flash_attention_3", "sdpa")


@dataclasses.dataclass
class DeepSpeedSequenceParallelConfig(settings.DeepSpeedSequenceParallelConfig):
    """How sequences are split along sp. None: from PARALLELISM_CONFIG_SP_*, else lengths may change between batches. Each name of an attention
    that Accelerate takes is taken, and the engine's attention computes."""

    def __post_init__(self):
        read_variables(self, "sp_seq_length_is_variable", "sp_attn_implementation")
        if not self.sp_seq_length_is_variable:
            read_variables(self, "sp_seq_length")
            if self.sp_seq_length in (None, "None"):
                raise ValueError("sp_seq_length_is_variable is False and there is no sp_seq_length: expected the length, or the variable "
                                 "PARALLELISM_CONFIG_SP_SEQ_LENGTH")
            length = int(self.sp_seq_length) if isinstance(self.sp_seq_length, str) else self.sp_seq_length
            self.sp_seq_length = whole_number("sp_seq_length", length, 1)
        name = self.sp_attn_implementation
        is_kernel_of_hub = name is not None and "/" in name and "flash-attn" in name
        if not (name is None or name in _ATTENTION or is_kernel_of_hub):
            raise ValueError(f"Invalid sp_attn_implementation: {name}; expected one of {', '.join(_ATTENTION)}, or a kernel such as "
                             "'kernels-community/flash-attn2'")
