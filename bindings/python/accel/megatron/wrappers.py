"""An optimizer and a schedule that the engine of Megatron-LM's settings steps: their own step() does nothing."""

from ..state.job import current
from ..training.torch_optimizer import AcceleratedOptimizer
from ..training.torch_scheduler import AcceleratedScheduler


class MegatronLMOptimizerWrapper(AcceleratedOptimizer):
    """A prepared optimizer; another one is prepared."""

    def __init__(self, optimizer):
        if isinstance(optimizer, AcceleratedOptimizer):  # it is known to the engine already
            vars(self).update(vars(optimizer))
            self._prepared = optimizer
        else:
            super().__init__(optimizer, device_placement=False, state=current())

    def zero_grad(self, set_to_none=None):
        pass

    def step(self, closure=None):
        pass

    @property
    def step_was_skipped(self):
        """Whether the latest update was left out, because gradients overflowed."""
        return bool(getattr(self.optimizer, "skipped_iter", super().step_was_skipped))

    def __repr__(self):
        return f"MegatronLMOptimizerWrapper({self.optimizer!r})"


class MegatronLMSchedulerWrapper(AcceleratedScheduler):
    """A prepared schedule; another one is prepared."""

    def __init__(self, scheduler, optimizers):
        if isinstance(scheduler, AcceleratedScheduler):
            vars(self).update(vars(scheduler))
            self._prepared = scheduler
        else:
            super().__init__(scheduler, optimizers, state=current())

    def step(self, *args, **kwargs):
        pass
