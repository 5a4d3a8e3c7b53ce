# SPDX-License-Identifier: Apache-2.0
"""Learning rate schedules, with the names and arguments of torch.optim.lr_scheduler and transformers."""

import functools
import math

from .. import capi
from ..generated.schedules import *  # noqa: F403
from ..generated.schedules_with_warmup import (get_constant_schedule_with_warmup, get_cosine_with_hard_restarts_schedule_with_warmup,  # noqa: F401
                                               get_inverse_sqrt_schedule, get_linear_schedule_with_warmup)
from .scheduler import LRScheduler as LRScheduler, Prepared as Prepared


class LambdaLR(LRScheduler):
    """The initial rate times lr_lambda(step); a list has a function for each group."""

    def __init__(self, optimizer, lr_lambda, last_epoch=-1):
        if not isinstance(lr_lambda, (list, tuple)):
            super().__init__(optimizer, lambda: capi.accel_scheduler_lambda(optimizer.handle, lr_lambda), last_epoch)
            return
        functions, groups = list(lr_lambda), len(optimizer.param_groups)
        if len(functions) != groups:
            raise ValueError(f"lr_lambda has {len(functions)} functions; the optimizer has {groups} groups")
        super().__init__(optimizer, lambda: capi.accel_scheduler_group_lambda(optimizer.handle, lambda step, group: functions[group](step)),
                         last_epoch)


class ChainedScheduler(LRScheduler):
    """Several schedules together: their factors multiply."""

    def __init__(self, schedulers, optimizer=None):
        handles = [scheduler.handle for scheduler in schedulers]
        super().__init__(schedulers[0].optimizer, lambda: capi.accel_scheduler_chained(handles))


class SequentialLR(LRScheduler):
    """One schedule after the other, each from its milestone."""

    def __init__(self, optimizer, schedulers, milestones, last_epoch=-1):
        handles = [scheduler.handle for scheduler in schedulers]
        super().__init__(optimizer, lambda: capi.accel_scheduler_sequential(handles, list(milestones)), last_epoch)


def get_cosine_schedule_with_warmup(optimizer, num_warmup_steps, num_training_steps, num_cycles=0.5, last_epoch=-1, min_factor=0.0):
    """Rises for the warm-up, then follows a cosine, by default half a one, down to min_factor."""
    if num_cycles == 0.5:
        return LRScheduler(optimizer, lambda: capi.accel_scheduler_cosine(optimizer.handle, num_warmup_steps, num_training_steps, float(min_factor)), last_epoch)
    factor = functools.partial(_cosine_factor, num_warmup_steps, num_training_steps, num_cycles, min_factor)
    return LambdaLR(optimizer, factor, last_epoch)


def _cosine_factor(warmup_steps, total_steps, num_cycles, min_factor, step):
    if step < warmup_steps:
        return step / max(1, warmup_steps)
    progress = min(1.0, (step - warmup_steps) / max(1, total_steps - warmup_steps))
    return min_factor + (1 - min_factor) * max(0.0, 0.5 * (1 + math.cos(2 * math.pi * num_cycles * progress)))
