# SPDX-License-Identifier: Apache-2.0
"""Base of all learning rate schedules."""

from .. import capi
from ..engine.objects import made_again
from ..generated import methods


class LRScheduler(methods.LRScheduler):
    """A schedule. `scheduler.step()` advances it; a prepared one follows its optimizer. With `last_epoch` a schedule continues after that
    step of an optimizer whose groups have an initial_lr."""

    def __init__(self, optimizer, make, last_epoch=-1):
        self.optimizer = optimizer
        rates = None if last_epoch == -1 else _rates_to_resume(optimizer)
        self.handle = make()
        if rates is not None:
            self.load_state_dict({**self.state_dict(), "last_epoch": last_epoch, "_last_lr": rates})
            capi.accel_scheduler_step(self.handle)

    def __new__(cls, *args, **kwargs):
        made = super().__new__(cls)
        made._arguments = (args, kwargs)  # for copies
        return made

    def step(self, metrics=None):
        """One step on; a ReduceLROnPlateau with what was measured."""
        if metrics is None:
            capi.accel_scheduler_step(self.handle)
        else:
            capi.accel_scheduler_step_metric(self.handle, float(metrics))

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

    def __reduce__(self):
        return made_again, (type(self), *self._arguments, self.state_dict())

    def __repr__(self):
        return f"{type(self).__name__}(lr={self.get_last_lr()})"


def num_steps(total_steps, epochs, steps_per_epoch):
    """The steps of a schedule with an end."""
    if total_steps is None and (epochs is None or steps_per_epoch is None):
        raise ValueError("give total_steps, or epochs and steps_per_epoch")
    return epochs * steps_per_epoch if total_steps is None else total_steps


def _rates_to_resume(optimizer):
    """The rates that the optimizer has."""
    for place, group in enumerate(optimizer.param_groups):
        if group.get("initial_lr") is None:
            raise KeyError(f"last_epoch: param_groups[{place}] has no 'initial_lr'; load the state of the optimizer, or set it")
    return [group["lr"] for group in optimizer.param_groups]


class Prepared(LRScheduler):
    """A schedule that steps with its optimizer; `scheduler` is the one inside."""

    def __init__(self, handle, scheduler):
        self.handle, self.scheduler, self.optimizer = handle, scheduler, scheduler.optimizer

    def step(self, metric=None):
        super().step(metric)

    def __reduce__(self):
        """A copy is that of the schedule inside: it belongs to no job."""
        return self.scheduler.__reduce__()
