# SPDX-License-Identifier: Apache-2.0
"""Schedulers of torch and transformers that step with the updates of their optimizer, and are saved with the training state."""

import weakref

from .. import capi
from ..engine.objects import inside, packed_state, unpacked_state
from ..state.job import current
from ..state.process import GradientState, current_of_accelerator
from .torch_optimizer import stand_in_of


class AcceleratedScheduler:
    """A prepared scheduler. `scheduler` is the one inside, whose attributes it has."""

    _is_accelerate_prepared = True

    def __init__(self, scheduler, optimizers, step_with_optimizer=True, split_batches=False, *, state=None):
        self.scheduler = scheduler
        self.optimizers = list(optimizers) if isinstance(optimizers, (list, tuple)) else [optimizers]
        self.step_with_optimizer, self.split_batches = step_with_optimizer, split_batches
        self._arguments = (), {}  # of the step under way
        self.counts_updates = getattr(scheduler, "counts_updates", False)  # one step for each, whatever the number of ranks
        self.handle = capi.accel_prepare_scheduler(current_of_accelerator() if state is None else state, _register(self))

    gradient_state = property(lambda self: GradientState())

    def step(self, *args, **kwargs):
        """One step on, when the optimizer was updated; the arguments are those of the scheduler's own step()."""
        if self.step_with_optimizer and any(getattr(optimizer, "_skipped_by_program", False) for optimizer in self.optimizers):
            return
        self._arguments = args, kwargs
        try:
            if args or kwargs or self.counts_updates:
                capi.accel_scheduler_step_metric(self.handle, 0.0)  # counted once
            else:
                capi.accel_scheduler_step(self.handle)
        finally:
            self._arguments = (), {}

    def _step(self, _metric):
        """The step, called by the engine. A schedule with an end, such as OneCycleLR, ignores steps behind it."""
        args, kwargs = self._arguments
        total = getattr(self.scheduler, "total_steps", None)
        if total is None or not self.step_with_optimizer or self.scheduler._step_count <= total:
            self.scheduler.step(*args, **kwargs)

    def _count_step(self):
        self.scheduler._step_count += 1

    def state_dict(self):
        return self.scheduler.state_dict()

    def load_state_dict(self, state_dict):
        self.scheduler.load_state_dict(state_dict)

    def get_last_lr(self):
        """The rates that the latest step set, of each group."""
        return self.scheduler.get_last_lr()

    def get_lr(self):
        return self.scheduler.get_lr()

    def print_lr(self, *args, **kwargs):
        return self.scheduler.print_lr(*args, **kwargs)

    def __getattr__(self, name):
        if name == "scheduler":
            raise AttributeError(name)
        return getattr(self.scheduler, name)

    def __reduce__(self):
        """A copy is that of the scheduler inside: it belongs to no job."""
        return inside, (self.scheduler,)

    def __repr__(self):
        return f"AcceleratedScheduler({self.scheduler!r})"


def _register(owner):
    """The engine's scheduler that calls one of torch."""
    optimizer = owner.optimizers[0].handle if owner.optimizers else stand_in_of(owner.scheduler.optimizer)
    owner = weakref.ref(owner)  # the engine holds the callbacks: no circle
    return capi.accel_scheduler_from_callbacks(optimizer, (
        lambda: packed_state(owner().state_dict()), lambda saved: owner().load_state_dict(unpacked_state(saved, trusted=False)),
        lambda metric: owner()._step(metric), lambda: owner()._count_step()))


class SteppedScheduler(AcceleratedScheduler):
    """A scheduler that an engine of whole steps steps: its own step() does nothing. One that is not prepared is prepared."""

    def __init__(self, scheduler, optimizers):
        if isinstance(scheduler, AcceleratedScheduler):
            vars(self).update(vars(scheduler))
            self._prepared = scheduler
        else:
            super().__init__(scheduler, optimizers, state=current())

    def step(self, *args, **kwargs):
        pass
