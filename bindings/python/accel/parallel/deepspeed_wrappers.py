# SPDX-License-Identifier: Apache-2.0
"""The calling rule of DeepSpeed over prepared objects of torch: one call computes gradients and, at the end of a window, updates."""

from ..training.torch_optimizer import SteppedOptimizer
from ..training.torch_scheduler import SteppedScheduler


class PreparedEngine:
    """A prepared model with its optimizer and scheduler, under the names of DeepSpeed's engine. Clipping is that of the configuration."""

    def __init__(self, accelerator, model, optimizer=None, scheduler=None):
        self.accelerator, self.module, self.optimizer, self.lr_scheduler = accelerator, model, optimizer, scheduler
        self._is_boundary, self._norm = True, None

    def __call__(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def set_gradient_accumulation_boundary(self, is_boundary):
        """Whether the next backward ends a window, after which gradients are exchanged and the parameters updated."""
        self._is_boundary = bool(is_boundary)
        if self.accelerator.sync_gradients != self._is_boundary:
            self.accelerator.sync_gradients = self._is_boundary

    def is_gradient_accumulation_boundary(self):
        return self._is_boundary

    def backward(self, loss, **kwargs):
        self.accelerator._backward(loss, **kwargs)

    def step(self):
        """Updates, steps the scheduler, and drops the gradients; in the middle of a window it does nothing."""
        if not self._is_boundary or self.optimizer is None:
            return
        # What clips nothing returns the norm that all ranks together have.
        self._norm = self.accelerator._clip_grad_norm(self.module.parameters(), float("inf"))
        self.optimizer.step()
        if self.lr_scheduler is not None:
            self.lr_scheduler.step()
        self.optimizer.zero_grad()

    def get_global_grad_norm(self):
        """The norm of the gradients of the latest update, before they were clipped; None before the first."""
        return self._norm

    def zero_gather_16bit_weights_on_model_save(self):
        """Whether whole weights may be taken from the model under ZeRO 3."""
        return bool(self.accelerator.deepspeed_plugin.get_value("zero_optimization.stage3_gather_16bit_weights_on_model_save"))


class DeepSpeedEngineWrapper:
    """backward() of an engine, a PreparedEngine or another one with its methods, which also updates when gradients are complete."""

    def __init__(self, engine):
        self.engine = engine

    def backward(self, loss, sync_gradients=True, **kwargs):
        """Gradients of the loss; with `sync_gradients` the update, which needs no call of the optimizer."""
        self.engine.set_gradient_accumulation_boundary(is_boundary=sync_gradients)
        self.engine.backward(loss, **kwargs)
        if sync_gradients:
            self.engine.step()

    def get_global_grad_norm(self):
        """The norm of the latest update's gradients as a number."""
        norm = self.engine.get_global_grad_norm()
        return norm.item() if hasattr(norm, "item") else norm


class DeepSpeedOptimizerWrapper(SteppedOptimizer):
    SKIPPED = "overflow"


class DeepSpeedSchedulerWrapper(SteppedScheduler):
    pass


def map_pytorch_optim_to_deepspeed(optimizer):
    """The optimizer itself, which works on parameters in the memory of the host and in files, too."""
    return optimizer
