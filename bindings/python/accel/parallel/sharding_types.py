# SPDX-License-Identifier: Apache-2.0
"""The classes of torch.distributed.fsdp that settings of sharding are made of: torch's own where the program uses torch, else those here, which
have the same names and fields."""

import enum
import sys
from typing import Any, Optional

from ..generated.settings import (CPUOffload, CPUOffloadPolicy, FullOptimStateDictConfig, FullStateDictConfig, MixedPrecision,  # noqa: F401
                                  MixedPrecisionPolicy, OffloadPolicy, ShardedOptimStateDictConfig, ShardedStateDictConfig)


class ShardingStrategy(enum.Enum):
    FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD, _HYBRID_SHARD_ZERO2 = range(1, 6)


class BackwardPrefetch(enum.Enum):
    BACKWARD_PRE, BACKWARD_POST = range(1, 3)


class StateDictType(enum.Enum):
    FULL_STATE_DICT, LOCAL_STATE_DICT, SHARDED_STATE_DICT = range(1, 4)


def transformer_auto_wrap_policy(module, recurse, nonwrapped_numel, transformer_layer_cls):
    """Whether a module is of one of the classes."""
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def size_based_auto_wrap_policy(module, recurse, nonwrapped_numel, min_num_params=100_000_000):
    """Whether a module has as many parameters that belong to no group yet."""
    return nonwrapped_numel >= min_num_params


def types() -> Any:
    """The module with these classes."""
    if "torch" not in sys.modules:
        return sys.modules[__name__]
    from torch.distributed import fsdp

    return fsdp


def policies() -> Any:
    """The module with the two functions."""
    if "torch" not in sys.modules:
        return sys.modules[__name__]
    from torch.distributed.fsdp import wrap

    return wrap


def dtypes() -> "dict[str, Any]":
    """The dtypes of the names of precisions. Fp8 computes on tensors of bfloat16."""
    if "torch" in sys.modules:
        import torch

        return {"fp8": torch.bfloat16, "fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
    from ..tensors import dtypes as own

    return {"fp8": own.bfloat16, "fp16": own.float16, "bf16": own.bfloat16, "fp32": own.float32}


def dtype_name(dtype: Any) -> "Optional[str]":
    """"bfloat16" for torch.bfloat16 and for accel.bfloat16."""
    return None if dtype is None else str(dtype).rsplit(".", 1)[-1]
