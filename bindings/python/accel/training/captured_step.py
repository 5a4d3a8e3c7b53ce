# SPDX-License-Identifier: Apache-2.0
"""Steps that the device records, of programs on the package's own tensors or on torch's."""

import functools
from collections import namedtuple

from .. import capi
from ..engine.torch_types import is_torch_tensor
from ..engine.values import engine_values, map_leaves
from ..state.options import fill
from ..tensors.tensor_type import is_tensor

Counts = namedtuple("Counts", "steps captures replays")
Counts.__doc__ = "Steps; recordings; steps that a recording did, whereas the others were ordinary ones."


class CapturedStep:
    """The result of `accelerator.capture()`: called with the inputs of a step, it takes one and returns what the function returned, without
    gradient history. The function does forward, backward(), clipping and the optimizer's step; it may use all `optimizers` of the
    accelerator. The device records it after `warmup_steps` ordinary ones, for up to `max_captures` combinations of shapes; with
    `run_others` the rest are ordinary ones too, as all are where devices have no graphs."""

    def __init__(self, state, function, optimizers, warmup_steps: int = 3, max_captures: int = 1, run_others: bool = False):
        if not callable(function):
            raise TypeError(f"capture: the step is a {type(function).__name__}; expected a function of a batch")
        functools.update_wrapper(self, function, updated=())
        self._state, self._function, self._optimizers = state, function, optimizers
        self._settings = {"warmup_steps": warmup_steps, "max_captures": max_captures, "run_others": run_others}
        self._kind = _Kind()
        self._begin()

    def _begin(self):
        """The engine's step, with warm-ups ahead of it."""
        inner = capi.accel_module_create("Step")
        capi.accel_module_set_forward(inner, functools.partial(_run, self._function, self._kind))
        self._handle = capi.accel_step_capture(self._state, inner, fill(capi.accel_capture_options_t(), self._settings))
        self._host_values = _host_values(self._optimizers)

    def __call__(self, *inputs):
        if self._host_values != _host_values(self._optimizers):  # which the recording has as they were
            self._settings["warmup_steps"] = 1
            self._begin()
        self._kind.inputs_are_of_torch = False
        map_leaves(inputs, is_torch_tensor, self._kind.note_input)
        answer = capi.accel_module_call(self._handle, engine_values(inputs, "the inputs of the step have"))
        return _torch_values(answer) if self._kind.results_are_of_torch else answer

    @property
    def counts(self) -> Counts:
        return Counts(*capi.accel_step_capture_counts(self._handle))


class _Kind:
    """Whose tensors the step takes and returns."""

    inputs_are_of_torch = results_are_of_torch = False

    def note_input(self, tensor):
        self.inputs_are_of_torch = True
        return tensor

    def note_result(self, tensor):
        self.results_are_of_torch = True
        return tensor


def _host_values(optimizers):
    """The settings of torch's optimizers, and how often their states were loaded. The engine knows those of its own."""
    values = []
    for optimizer in optimizers:
        if hasattr(optimizer, "num_loads"):
            values.append(optimizer.num_loads)
            for group in optimizer.param_groups:
                values += [id(value) if is_torch_tensor(value) else value for name, value in group.items() if name != "params"]
    return values


def _run(function, kind, _, inputs):
    answer = function(*(_torch_values(inputs) if kind.inputs_are_of_torch else inputs))
    map_leaves(answer, is_torch_tensor, kind.note_result)
    return engine_values(answer, "the results of the step have")


def _torch_values(tree):
    from ..engine.bridge import to_torch  # imports torch

    return map_leaves(tree, is_tensor, to_torch)
