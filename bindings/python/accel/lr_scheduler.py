"""Learning rate schedules, with the names and arguments of torch.optim.lr_scheduler and transformers."""

import functools
import math

from . import capi
from .handlers import fill


class LRScheduler:
    """A schedule. `scheduler.step()` goes on; a prepared one follows its optimizer. With `last_epoch` a schedule goes on behind that
    step of an optimizer whose groups have an initial_lr."""

    def __init__(self, make, optimizer, *arguments, last_epoch=-1):
        self.optimizer = optimizer
        rates = None if last_epoch == -1 else _rates_to_resume(optimizer)
        self.handle = make(optimizer.handle, *arguments)
        if rates is not None:
            self.load_state_dict({**self.state_dict(), "last_epoch": last_epoch, "_last_lr": rates})
            capi.accel_scheduler_step(self.handle)

    def __new__(cls, *args, **kwargs):
        made = super().__new__(cls)
        made._arguments = (args, kwargs)  # for copies
        return made

    def step(self):
        capi.accel_scheduler_step(self.handle)

    def get_last_lr(self):
        """The rates that the latest step set, of each group."""
        return [capi.accel_scheduler_last_lr(self.handle, group) for group in range(len(self.optimizer.param_groups))]

    get_lr = get_last_lr

    def print_lr(self):
        """Prints the rates."""
        print(f"step {self.last_epoch}: learning rates {self.get_last_lr()}")

    @property
    def last_epoch(self):
        """The step that the schedule is at, from 0."""
        return self.state_dict()["last_epoch"]

    @property
    def base_lrs(self):
        """The initial rates."""
        return self.state_dict()["base_lrs"]

    def curve(self, n_steps):
        """The rates of the coming updates, [n_steps, groups], found out without training."""
        return capi.accel_scheduler_curve(self.handle, n_steps)

    def state_dict(self):
        return capi.accel_scheduler_state_dict(self.handle)

    def load_state_dict(self, state_dict):
        capi.accel_scheduler_load_state_dict(self.handle, state_dict)

    def __reduce__(self):
        args, kwargs = self._arguments
        return _rebuild, (type(self), args, kwargs, self.state_dict())

    def __repr__(self):
        return f"{type(self).__name__}(lr={self.get_last_lr()})"


def _rates_to_resume(optimizer):
    """The rates that the optimizer has."""
    for place, group in enumerate(optimizer.param_groups):
        if group.get("initial_lr") is None:
            raise KeyError(f"last_epoch: param_groups[{place}] has no 'initial_lr'; load the state of the optimizer, or set it")
    return [group["lr"] for group in optimizer.param_groups]


def _rebuild(kind, args, kwargs, state):
    made = kind(*args, **kwargs)
    made.load_state_dict(state)
    return made


class Prepared(LRScheduler):
    """A schedule that steps with its optimizer; `scheduler` is the one inside."""

    def __init__(self, handle, scheduler):
        self.handle, self.scheduler, self.optimizer = handle, scheduler, scheduler.optimizer

    def step(self, metric=None):
        if metric is None:
            capi.accel_scheduler_step(self.handle)
        else:
            capi.accel_scheduler_step_metric(self.handle, float(metric))

    def __reduce__(self):
        """A copy is that of the schedule inside: it belongs to no job."""
        return self.scheduler.__reduce__()


class LambdaLR(LRScheduler):
    """The initial rate times lr_lambda(step); a list has a function for each group."""

    def __init__(self, optimizer, lr_lambda, last_epoch=-1):
        if not isinstance(lr_lambda, (list, tuple)):
            super().__init__(capi.accel_scheduler_lambda, optimizer, lr_lambda, last_epoch=last_epoch)
            return
        functions, groups = list(lr_lambda), len(optimizer.param_groups)
        if len(functions) != groups:
            raise ValueError(f"lr_lambda has {len(functions)} functions; the optimizer has {groups} groups")
        super().__init__(capi.accel_scheduler_group_lambda, optimizer, lambda step, group: functions[group](step), last_epoch=last_epoch)


class StepLR(LRScheduler):
    def __init__(self, optimizer, step_size, gamma=0.1, last_epoch=-1):
        super().__init__(capi.accel_scheduler_step_lr, optimizer, step_size, gamma, last_epoch=last_epoch)


class MultiStepLR(LRScheduler):
    def __init__(self, optimizer, milestones, gamma=0.1, last_epoch=-1):
        super().__init__(capi.accel_scheduler_multi_step, optimizer, list(milestones), gamma, last_epoch=last_epoch)


class ConstantLR(LRScheduler):
    def __init__(self, optimizer, factor=1 / 3, total_iters=5, last_epoch=-1):
        super().__init__(capi.accel_scheduler_constant, optimizer, factor, total_iters, last_epoch=last_epoch)


class LinearLR(LRScheduler):
    def __init__(self, optimizer, start_factor=1 / 3, end_factor=1.0, total_iters=5, last_epoch=-1):
        super().__init__(capi.accel_scheduler_linear, optimizer, start_factor, end_factor, total_iters, last_epoch=last_epoch)


class ExponentialLR(LRScheduler):
    def __init__(self, optimizer, gamma, last_epoch=-1):
        super().__init__(capi.accel_scheduler_exponential, optimizer, gamma, last_epoch=last_epoch)


class PolynomialLR(LRScheduler):
    def __init__(self, optimizer, total_iters=5, power=1.0, last_epoch=-1):
        super().__init__(capi.accel_scheduler_polynomial, optimizer, total_iters, power, last_epoch=last_epoch)


class CosineAnnealingLR(LRScheduler):
    def __init__(self, optimizer, T_max, eta_min=0.0, last_epoch=-1):
        super().__init__(capi.accel_scheduler_cosine_annealing, optimizer, T_max, eta_min, last_epoch=last_epoch)


class CosineAnnealingWarmRestarts(LRScheduler):
    def __init__(self, optimizer, T_0, T_mult=1, eta_min=0.0, last_epoch=-1):
        super().__init__(capi.accel_scheduler_cosine_warm_restarts, optimizer, T_0, T_mult, eta_min, last_epoch=last_epoch)


class OneCycleLR(LRScheduler):
    """Further arguments: pct_start, anneal_strategy ("cos", "linear"), cycle_momentum, base_momentum, max_momentum, div_factor,
    final_div_factor, three_phase."""

    def __init__(self, optimizer, max_lr, total_steps=None, epochs=None, steps_per_epoch=None, anneal_strategy=None, last_epoch=-1,
                 **settings):
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("OneCycleLR: give total_steps, or epochs and steps_per_epoch")
            total_steps = epochs * steps_per_epoch
        strategies = {None: None, "cos": capi.ACCEL_ANNEAL_COS, "linear": capi.ACCEL_ANNEAL_LINEAR}
        options = fill(capi.accel_one_cycle_options_t(), {**settings, "anneal_strategy": strategies[anneal_strategy]})
        super().__init__(capi.accel_scheduler_one_cycle, optimizer, max_lr, total_steps, options, last_epoch=last_epoch)


class CyclicLR(LRScheduler):
    """Further arguments: step_size_up, step_size_down, mode ("triangular", "triangular2", "exp_range"), gamma, cycle_momentum,
    base_momentum, max_momentum."""

    def __init__(self, optimizer, base_lr, max_lr, mode=None, last_epoch=-1, **settings):
        modes = {None: None, "triangular": capi.ACCEL_CYCLE_TRIANGULAR, "triangular2": capi.ACCEL_CYCLE_TRIANGULAR2,
                 "exp_range": capi.ACCEL_CYCLE_EXP_RANGE}
        options = fill(capi.accel_cyclic_options_t(), {**settings, "mode": modes[mode]})
        super().__init__(capi.accel_scheduler_cyclic, optimizer, base_lr, max_lr, options, last_epoch=last_epoch)


class ReduceLROnPlateau(LRScheduler):
    """Further arguments: mode ("min", "max"), factor, patience, threshold, threshold_mode ("rel", "abs"), cooldown, min_lr, eps."""

    def __init__(self, optimizer, mode=None, threshold_mode=None, **settings):
        modes = {None: None, "min": capi.ACCEL_METRIC_MIN, "max": capi.ACCEL_METRIC_MAX}
        thresholds = {None: None, "rel": capi.ACCEL_THRESHOLD_REL, "abs": capi.ACCEL_THRESHOLD_ABS}
        options = fill(capi.accel_plateau_options_t(), {**settings, "mode": modes[mode], "threshold_mode": thresholds[threshold_mode]})
        super().__init__(capi.accel_scheduler_plateau, optimizer, options)

    def step(self, metrics):
        capi.accel_scheduler_step_metric(self.handle, float(metrics))


class ChainedScheduler(LRScheduler):
    """Several schedules together: their factors multiply."""

    def __init__(self, schedulers, optimizer=None):
        handles = [scheduler.handle for scheduler in schedulers]
        super().__init__(lambda _: capi.accel_scheduler_chained(handles), schedulers[0].optimizer)


class SequentialLR(LRScheduler):
    """One schedule after the other, each from its milestone."""

    def __init__(self, optimizer, schedulers, milestones, last_epoch=-1):
        handles = [scheduler.handle for scheduler in schedulers]
        super().__init__(lambda _: capi.accel_scheduler_sequential(handles, list(milestones)), optimizer, last_epoch=last_epoch)


def get_linear_schedule_with_warmup(optimizer, num_warmup_steps, num_training_steps, last_epoch=-1):
    """Rises for the warm-up, then falls to 0."""
    return LRScheduler(capi.accel_scheduler_linear_warmup, optimizer, num_warmup_steps, num_training_steps, last_epoch=last_epoch)


def get_cosine_schedule_with_warmup(optimizer, num_warmup_steps, num_training_steps, num_cycles=0.5, last_epoch=-1, min_factor=0.0):
    """Rises for the warm-up, then follows a cosine, by default half a one, down to min_factor."""
    if num_cycles == 0.5:
        return LRScheduler(capi.accel_scheduler_cosine, optimizer, num_warmup_steps, num_training_steps, float(min_factor),
                           last_epoch=last_epoch)
    factor = functools.partial(_cosine_factor, num_warmup_steps, num_training_steps, num_cycles, min_factor)
    return LambdaLR(optimizer, factor, last_epoch)


def _cosine_factor(warmup_steps, total_steps, num_cycles, min_factor, step):
    if step < warmup_steps:
        return step / max(1, warmup_steps)
    progress = min(1.0, (step - warmup_steps) / max(1, total_steps - warmup_steps))
    return min_factor + (1 - min_factor) * max(0.0, 0.5 * (1 + math.cos(2 * math.pi * num_cycles * progress)))


def get_cosine_with_hard_restarts_schedule_with_warmup(optimizer, num_warmup_steps, num_training_steps, num_cycles=1, last_epoch=-1):
    return LRScheduler(capi.accel_scheduler_cosine_hard_restarts, optimizer, num_warmup_steps, num_training_steps, num_cycles,
                       last_epoch=last_epoch)


def get_constant_schedule_with_warmup(optimizer, num_warmup_steps, last_epoch=-1):
    return LRScheduler(capi.accel_scheduler_constant_with_warmup, optimizer, num_warmup_steps, last_epoch=last_epoch)


def get_inverse_sqrt_schedule(optimizer, num_warmup_steps, timescale=None, last_epoch=-1):
    unset = capi.ACCEL_UNSET_INT64
    return LRScheduler(capi.accel_scheduler_inverse_sqrt, optimizer, num_warmup_steps, unset if timescale is None else timescale,
                       last_epoch=last_epoch)
