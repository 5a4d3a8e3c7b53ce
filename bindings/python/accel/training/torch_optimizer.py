# SPDX-License-Identifier: Apache-2.0
"""torch.optim optimizers that step when gradients are complete, and are saved with the training state."""

import functools
import inspect
import weakref

import torch

from .. import capi
from ..data.sharded_rows import cut_states
from ..engine.bridge import from_torch
from ..engine.objects import inside, packed_state, unpacked_state
from ..state.job import current, sharded_by
from ..state.process import AcceleratorState, GradientState, PartialState, current_of_accelerator
from . import fused_update


class AcceleratedOptimizer(torch.optim.Optimizer):
    """A prepared optimizer of torch. `optimizer` is the one inside, whose groups, state and hooks are its own. With `fused` the update is
    that of torch's fused form where there is one, and the program chose neither `foreach` nor `fused` (fused_update.py)."""

    _is_accelerate_prepared = True
    is_saved = is_loaded = True  # whether checkpoints have the states, and whether those of a checkpoint are taken
    num_loads = 0  # times that other tensors became the state

    def __init__(self, optimizer, device_placement=True, scaler=None, *, state=None, fused=True):
        self.optimizer, self.device_placement, self.scaler, self.fused = optimizer, device_placement, scaler, fused
        self._fused_update = None  # once it is known to fit
        self._closure = self._result = None  # of the step under way
        self._skipped_by_program, self._are_states_placed = False, not device_placement
        self._may_be_whole = sharded_by() != (None, None)  # whether states may have the shapes of parameters that are not cut
        self.inner_handle = _register(self)
        self.handle = capi.accel_prepare_optimizer(current_of_accelerator() if state is None else state, self.inner_handle)

    accelerator_state, gradient_state = property(lambda self: AcceleratorState()), property(lambda self: GradientState())
    state = property(lambda self: self.optimizer.state, lambda self, state: setattr(self.optimizer, "state", state))
    param_groups = property(lambda self: self.optimizer.param_groups, lambda self, groups: setattr(self.optimizer, "param_groups", groups))
    defaults = property(lambda self: self.optimizer.defaults, lambda self, defaults: setattr(self.optimizer, "defaults", defaults))

    def __getattr__(self, name):
        if name == "optimizer":
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    def add_param_group(self, param_group):
        self.optimizer.add_param_group(param_group)
        _add_group(self.inner_handle, self.optimizer.param_groups[-1])

    def state_dict(self):
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict):
        self.optimizer.load_state_dict(state_dict)
        self.num_loads += 1
        self._may_be_whole = sharded_by() != (None, None)

    def _load(self, saved):
        """The state of a checkpoint."""
        if self.is_loaded:
            self.optimizer.load_state_dict(saved)
            self.num_loads += 1

    def _fit_states(self):
        """Parameters are cut by now, also of a model that was prepared after this optimizer. Collective once, whatever states this rank has."""
        if self._may_be_whole and PartialState().use_distributed:
            cut_states(self.optimizer)
        self._may_be_whole = False

    def train(self):
        """For a schedule-free optimizer; others have nothing to switch."""
        if callable(getattr(self.optimizer, "train", None)):
            self.optimizer.train()

    def eval(self):
        if callable(getattr(self.optimizer, "eval", None)):
            self.optimizer.eval()

    def zero_grad(self, set_to_none=None):
        """Drops the gradients, unless they still accumulate; with set_to_none=False they become zeros."""
        if set_to_none is not None and not self._takes_set_to_none:
            raise ValueError(f"zero_grad(set_to_none={set_to_none}): {type(self.optimizer).__name__}.zero_grad() takes no set_to_none; leave it out")
        capi.accel_optimizer_zero_grad(self.handle, int(set_to_none is None or set_to_none))

    @functools.cached_property
    def _takes_set_to_none(self):
        return "set_to_none" in inspect.signature(self.optimizer.zero_grad).parameters

    def step(self, closure=None):
        """One update, when gradients are complete and have not overflowed. The result of the optimizer's own step(), None without one."""
        self._closure, self._result, self._skipped_by_program = closure, None, False
        try:
            capi.accel_optimizer_step(self.handle)
            return self._result
        finally:
            self._closure = self._result = None

    def _step(self):
        """The update, called by the engine."""
        if not self._are_states_placed:
            self._place_states()
        self._fit_states()
        if self._closure is not None:
            self._result = self.optimizer.step(self._closure)
        elif not self._step_fused():
            self._result = self.optimizer.step()

    def _place_states(self):
        """States from before the model came to its device, which are loaded ones and those that some optimizers begin with, follow it."""
        known = [(parameter, state) for parameter, state in self.optimizer.state.items() if isinstance(parameter, torch.Tensor)]
        if any(isinstance(value, torch.Tensor) and value.dim() > 0 and value.device != parameter.device
               for parameter, state in known for value in state.values()):
            self.optimizer.load_state_dict(self.optimizer.state_dict())  # which puts each where its parameter is
        self._are_states_placed = True

    def _step_fused(self):
        if not self.fused or not fused_update.fits(self.optimizer):
            return False
        if self._fused_update is None:
            self._fused_update = fused_update.FusedUpdate(self.optimizer)
        return self._fused_update.step()

    def _zero_grad(self, set_to_none):
        if set_to_none and type(self.optimizer).zero_grad is torch.optim.Optimizer.zero_grad:
            for group in self.optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = None
        elif self._takes_set_to_none:
            self.optimizer.zero_grad(set_to_none=bool(set_to_none))
        else:
            self.optimizer.zero_grad()

    @property
    def step_was_skipped(self):
        """Whether the latest update was skipped, because gradients overflowed."""
        return self._skipped_by_program or capi.accel_optimizer_step_was_skipped(self.handle) == 1

    @property
    def _is_overflow(self):
        """Accelerate's own name of it, which programs that step the optimizer inside themselves set, for the schedulers."""
        return self.step_was_skipped

    @_is_overflow.setter
    def _is_overflow(self, skipped):
        self._skipped_by_program = skipped

    def __reduce__(self):
        """A copy is that of the optimizer inside: it belongs to no job."""
        return inside, (self.optimizer,)

    def __repr__(self):
        return f"AcceleratedOptimizer({self.optimizer!r}{', fused' if self._fused_update is not None else ''})"


def _add_group(handle, group):
    capi.accel_optimizer_add_group(handle, [from_torch(parameter) for parameter in group["params"]], float(group.get("lr", 0) or 0),
                                   capi.ACCEL_UNSET_DOUBLE)


def stand_in_of(optimizer):
    """The engine's optimizer for a schedule of one that is not prepared: the program updates by it, and the engine never."""
    handle = capi.accel_optimizer_from_callbacks((lambda: packed_state(optimizer.state_dict()), lambda saved: None, lambda: None, lambda _: None))
    for group in optimizer.param_groups:
        _add_group(handle, group)
    return handle


def _packed(owner):
    owner._fit_states()
    if not owner.is_saved:
        return packed_state({**owner.optimizer.state_dict(), "state": {}})
    return packed_state(owner.optimizer.state_dict())


def _register(owner):
    """The engine's optimizer that calls one of torch."""
    owner = weakref.ref(owner)  # the engine holds the callbacks: no circle
    handle = capi.accel_optimizer_from_callbacks((
        lambda: _packed(owner()),
        lambda saved: owner()._load(unpacked_state(saved, trusted=False)),
        lambda: owner()._step(), lambda set_to_none: owner()._zero_grad(set_to_none)))
    for group in owner().optimizer.param_groups:
        _add_group(handle, group)
    return handle


class SteppedOptimizer(AcceleratedOptimizer):
    """An optimizer that an engine of whole steps updates: its own step() and zero_grad() do nothing. One that is not prepared is prepared."""

    SKIPPED = ""  # the attribute of the given optimizer that says whether its latest update was left out

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
        return bool(getattr(self.optimizer, self.SKIPPED, super().step_was_skipped))

    def __repr__(self):
        return f"{type(self).__name__}({self.optimizer!r})"
