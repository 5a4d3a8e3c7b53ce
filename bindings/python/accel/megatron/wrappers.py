# SPDX-License-Identifier: Apache-2.0
"""An optimizer and a schedule that the engine of Megatron-LM's settings steps."""

from ..training.torch_optimizer import SteppedOptimizer
from ..training.torch_scheduler import SteppedScheduler


class MegatronLMOptimizerWrapper(SteppedOptimizer):
    SKIPPED = "skipped_iter"


class MegatronLMSchedulerWrapper(SteppedScheduler):
    pass
