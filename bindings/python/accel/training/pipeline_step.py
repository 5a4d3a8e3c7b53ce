# SPDX-License-Identifier: Apache-2.0
"""A step of a model in stages: the batch and the loss on their way to the engine."""

import contextlib

from .. import capi
from ..engine.torch_types import is_torch_model
from ..engine.values import engine_values, to_engine
from ..tensors.tensor_type import is_tensor


def pipeline_step(state, handle, inputs, targets, loss, model):
    """Forward and backward; the loss of the batch. A value of a batch that the engine does not know is an error of all ranks along the axis."""
    if is_torch_model(model):
        return _step_of_torch(state, handle, inputs, targets, loss, model)
    name, function = (loss, None) if loss is None or isinstance(loss, str) else (None, _in_engine(loss))
    return _step(state, handle, lambda: inputs, targets, name, function)


def _step(state, handle, given_inputs, targets, name, function):
    try:
        inputs, targets = engine_values(given_inputs(), "the inputs have"), engine_values(targets, "the targets have")
    except Exception as error:
        refused = error  # the name `error` ends with this block

        def refuse(*_):
            raise refused

        with contextlib.suppress(Exception):
            capi.accel_pipeline_step(state, handle, None, None, None, refuse)  # the ranks that wait hear of it
        raise
    return capi.accel_pipeline_step(state, handle, inputs, targets, name, function)


def _in_engine(function):
    """The program's function of output and targets."""
    def in_engine(*values):
        loss = to_engine(function(*values))
        if not is_tensor(loss):
            raise TypeError(f"the loss is a {type(loss).__name__}; expected a tensor with gradient history")
        return loss

    return in_engine


def _step_of_torch(state, handle, inputs, targets, loss, model):
    """The inputs are one tree for the engine; a loss that the engine has by name gets the scores of the model's output."""
    from .prepared_forward import forward_of, within
    from .staged_model import OneStage, as_inputs, loss_of, scores_of, torch_values

    forward = forward_of(model)
    forward.follow_mode()
    stages = OneStage(forward) if forward.stages is None else forward.stages
    is_named = loss is None or isinstance(loss, str)
    function = None if is_named else _in_engine(lambda output, given: loss(stages.as_model(output), torch_values(given)))
    with within(stages) if forward.stages is None else contextlib.nullcontext(), stages.step((loss_of if loss is None else scores_of) if is_named else None):
        return _step(state, handle, lambda: inputs if inputs is None else [as_inputs(inputs)], targets, loss if is_named else None, function)
