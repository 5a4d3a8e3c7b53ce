"""Regions in which gradients are recorded or not; also decorators."""

from .. import capi
from ..engine.scopes import scope


def no_grad():
    """No gradients are recorded inside."""
    return scope(capi.accel_no_grad_begin)


def enable_grad():
    """Gradients are recorded inside, also within no_grad()."""
    return scope(capi.accel_enable_grad_begin)


def inference_mode():
    """As no_grad(), and results can never take part in autograd later, which is faster."""
    return scope(capi.accel_inference_mode_begin)
