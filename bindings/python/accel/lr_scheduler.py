"""Learning rate schedules, with the names and arguments of torch.optim.lr_scheduler and transformers."""

from . import capi
from .handlers import fill


class LRScheduler:
    """A schedule. `scheduler.step()` goes on; a prepared one follows its optimizer."""

    def __init__(self, handle, optimizer):
        self.handle, self.optimizer = handle, optimizer

    def step(self):
        capi.accel_scheduler_step(self.handle)

    def get_last_lr(self):
        """The rates that the latest step set, of each group."""
        return [capi.accel_scheduler_last_lr(self.handle, group) for group in range(len(self.optimizer.param_groups))]

    def curve(self, n_steps):
        """The rates of the coming updates, [n_steps, groups], found out without training."""
        return capi.accel_scheduler_curve(self.handle, n_steps)

    def state_dict(self):
        return capi.accel_scheduler_state_dict(self.handle)

    def load_state_dict(self, state_dict):
        capi.accel_scheduler_load_state_dict(self.handle, state_dict)

    def __repr__(self):
        return f"{type(self).__name__}(lr={self.get_last_lr()})"


class Prepared(LRScheduler):
    """A schedule that steps with its optimizer."""

    def step(self, metric=None):
        if metric is None:
            capi.accel_scheduler_step(self.handle)
        else:
            capi.accel_scheduler_step_metric(self.handle, float(metric))


class LambdaLR(LRScheduler):
    """The initial rate times lr_lambda(step)."""

    def __init__(self, optimizer, lr_lambda):
        super().__init__(capi.accel_scheduler_lambda(optimizer.handle, lr_lambda), optimizer)


class StepLR(LRScheduler):
    def __init__(self, optimizer, step_size, gamma=0.1):
        super().__init__(capi.accel_scheduler_step_lr(optimizer.handle, step_size, gamma), optimizer)


class MultiStepLR(LRScheduler):
    def __init__(self, optimizer, milestones, gamma=0.1):
        super().__init__(capi.accel_scheduler_multi_step(optimizer.handle, list(milestones), gamma), optimizer)


class ConstantLR(LRScheduler):
    def __init__(self, optimizer, factor=1 / 3, total_iters=5):
        super().__init__(capi.accel_scheduler_constant(optimizer.handle, factor, total_iters), optimizer)


class LinearLR(LRScheduler):
    def __init__(self, optimizer, start_factor=1 / 3, end_factor=1.0, total_iters=5):
        super().__init__(capi.accel_scheduler_linear(optimizer.handle, start_factor, end_factor, total_iters), optimizer)


class ExponentialLR(LRScheduler):
    def __init__(self, optimizer, gamma):
        super().__init__(capi.accel_scheduler_exponential(optimizer.handle, gamma), optimizer)


class PolynomialLR(LRScheduler):
    def __init__(self, optimizer, total_iters=5, power=1.0):
        super().__init__(capi.accel_scheduler_polynomial(optimizer.handle, total_iters, power), optimizer)


class CosineAnnealingLR(LRScheduler):
    def __init__(self, optimizer, T_max, eta_min=0.0):
        super().__init__(capi.accel_scheduler_cosine_annealing(optimizer.handle, T_max, eta_min), optimizer)


class CosineAnnealingWarmRestarts(LRScheduler):
    def __init__(self, optimizer, T_0, T_mult=1, eta_min=0.0):
        super().__init__(capi.accel_scheduler_cosine_warm_restarts(optimizer.handle, T_0, T_mult, eta_min), optimizer)


class OneCycleLR(LRScheduler):
    """Further arguments: pct_start, anneal_strategy ("cos", "linear"), cycle_momentum, base_momentum, max_momentum, div_factor,
    final_div_factor, three_phase."""

    def __init__(self, optimizer, max_lr, total_steps=None, epochs=None, steps_per_epoch=None, anneal_strategy=None, **settings):
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("OneCycleLR: give total_steps, or epochs and steps_per_epoch")
            total_steps = epochs * steps_per_epoch
        strategies = {None: None, "cos": capi.ACCEL_ANNEAL_COS, "linear": capi.ACCEL_ANNEAL_LINEAR}
        options = fill(capi.accel_one_cycle_options_t(), {**settings, "anneal_strategy": strategies[anneal_strategy]})
        super().__init__(capi.accel_scheduler_one_cycle(optimizer.handle, max_lr, total_steps, options), optimizer)


class CyclicLR(LRScheduler):
    """Further arguments: step_size_up, step_size_down, mode ("triangular", "triangular2", "exp_range"), gamma, cycle_momentum,
    base_momentum, max_momentum."""

    def __init__(self, optimizer, base_lr, max_lr, mode=None, **settings):
        modes = {None: None, "triangular": capi.ACCEL_CYCLE_TRIANGULAR, "triangular2": capi.ACCEL_CYCLE_TRIANGULAR2,
                 "exp_range": capi.ACCEL_CYCLE_EXP_RANGE}
        options = fill(capi.accel_cyclic_options_t(), {**settings, "mode": modes[mode]})
        super().__init__(capi.accel_scheduler_cyclic(optimizer.handle, base_lr, max_lr, options), optimizer)


class ReduceLROnPlateau(LRScheduler):
    """Further arguments: mode ("min", "max"), factor, patience, threshold, threshold_mode ("rel", "abs"), cooldown, min_lr, eps."""

    def __init__(self, optimizer, mode=None, threshold_mode=None, **settings):
        modes = {None: None, "min": capi.ACCEL_METRIC_MIN, "max": capi.ACCEL_METRIC_MAX}
        thresholds = {None: None, "rel": capi.ACCEL_THRESHOLD_REL, "abs": capi.ACCEL_THRESHOLD_ABS}
        options = fill(capi.accel_plateau_options_t(), {**settings, "mode": modes[mode], "threshold_mode": thresholds[threshold_mode]})
        super().__init__(capi.accel_scheduler_plateau(optimizer.handle, options), optimizer)

    def step(self, metrics):
        capi.accel_scheduler_step_metric(self.handle, float(metrics))


class ChainedScheduler(LRScheduler):
    """Several schedules together: their factors multiply."""

    def __init__(self, schedulers, optimizer=None):
        super().__init__(capi.accel_scheduler_chained([scheduler.handle for scheduler in schedulers]), schedulers[0].optimizer)


class SequentialLR(LRScheduler):
    """One schedule after the other, each from its milestone."""

    def __init__(self, optimizer, schedulers, milestones):
        super().__init__(capi.accel_scheduler_sequential([scheduler.handle for scheduler in schedulers], list(milestones)), optimizer)


def get_linear_schedule_with_warmup(optimizer, num_warmup_steps, num_training_steps):
    """Rises for the warm-up, then falls to 0."""
    return LRScheduler(capi.accel_scheduler_linear_warmup(optimizer.handle, num_warmup_steps, num_training_steps), optimizer)


def get_cosine_schedule_with_warmup(optimizer, num_warmup_steps, num_training_steps, min_factor=0.0):
    """Rises for the warm-up, then falls along half a cosine."""
    return LRScheduler(capi.accel_scheduler_cosine(optimizer.handle, num_warmup_steps, num_training_steps, min_factor), optimizer)


def get_cosine_with_hard_restarts_schedule_with_warmup(optimizer, num_warmup_steps, num_training_steps, num_cycles=1):
    return LRScheduler(capi.accel_scheduler_cosine_hard_restarts(optimizer.handle, num_warmup_steps, num_training_steps, num_cycles),
                       optimizer)


def get_constant_schedule_with_warmup(optimizer, num_warmup_steps):
    return LRScheduler(capi.accel_scheduler_constant_with_warmup(optimizer.handle, num_warmup_steps), optimizer)


def get_inverse_sqrt_schedule(optimizer, num_warmup_steps, timescale=None):
    unset = capi.ACCEL_UNSET_INT64
    return LRScheduler(capi.accel_scheduler_inverse_sqrt(optimizer.handle, num_warmup_steps, unset if timescale is None else timescale),
                       optimizer)
