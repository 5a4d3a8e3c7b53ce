# SPDX-License-Identifier: Apache-2.0
"""The loss scale of a job, with the names of torch.amp.GradScaler."""

from .. import capi
from ..generated import methods

_BY_ITSELF = {"scale": "accelerator.backward(loss) scales the loss", "step": "the step() of the prepared optimizer skips an update after an overflow",
              "update": "the step() of the prepared optimizer changes the scale"}


def _getter(setting):
    return lambda self: self.state_dict()[setting]


def _setter(setting, kind):
    return lambda self, value: self._set(**{setting: kind(value)})


class GradScaler(methods.GradScaler):
    """The scale of an Accelerator's losses, as it is now."""

    def __init__(self, accelerator):
        self._accelerator = accelerator

    @property
    def _state(self):
        return self._accelerator._current()

    @property
    def _init_scale(self):
        return self._accelerator._init_scale

    def is_enabled(self):
        return bool(self.state_dict())

    get_growth_factor, get_backoff_factor, get_growth_interval, _get_growth_tracker = map(
        _getter, ("growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"))
    set_growth_factor, set_backoff_factor = _setter("growth_factor", float), _setter("backoff_factor", float)
    set_growth_interval = _setter("growth_interval", int)

    def load_state_dict(self, state_dict):
        """Takes what state_dict() gave, or that of torch."""
        capi.accel_load_grad_scaler_state(self._state, dict(state_dict))
        self._accelerator._init_scale = self.get_scale()

    def _set(self, **settings):
        capi.accel_load_grad_scaler_state(self._state, {**self.state_dict(), **settings})

    def unscale_(self, optimizer):
        """Takes the scale out of the gradients of a prepared optimizer, once in each step."""
        self._accelerator.unscale_gradients(optimizer)

    _enabled = property(is_enabled)
    _growth_factor = property(get_growth_factor)
    _backoff_factor = property(get_backoff_factor)
    _growth_interval = property(get_growth_interval)

    def __getattr__(self, name):
        if name in _BY_ITSELF:
            raise NotImplementedError(f"scaler.{name}(): the engine does this by itself: {_BY_ITSELF[name]}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __reduce__(self):
        raise TypeError("the scaler of an Accelerator belongs to its job and cannot be copied; copy its state_dict()")

    def __repr__(self):
        return f"GradScaler({self.state_dict()})"
