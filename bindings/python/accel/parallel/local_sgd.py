# SPDX-License-Identifier: Apache-2.0
"""Local SGD: each rank trains for itself, and the weights are averaged every few steps."""

from .. import capi
from ..engine.scopes import scope
from ..generated import methods
from ..state.options import fill
from ..training.accelerator_arguments import handle_of


class LocalSGD(methods.LocalSGD):
    """`with LocalSGD(accelerator, model, local_sgd_steps=8) as local_sgd:`, and `local_sgd.step()` after each optimizer step.
    With outer_lr it is DiLoCo, with start_step post-local SGD."""

    def __init__(self, accelerator, model, local_sgd_steps, enabled=True, outer_lr=None, outer_momentum=None, outer_nesterov=None,
                 start_step=None):
        options = fill(capi.accel_local_sgd_options_t(), {"enabled": enabled, "outer_lr": outer_lr, "outer_momentum": outer_momentum,
                                                          "outer_nesterov": outer_nesterov, "start_step": start_step})
        self._scope = scope(capi.accel_local_sgd_begin, accelerator._current(), handle_of(model, "LocalSGD"), local_sgd_steps, options)

    def __enter__(self):
        self._open = self._scope.open()
        return self

    def __exit__(self, *raised):
        self._open = None
        return self._scope.__exit__(*raised)
