"""A step of a model in stages: the batch and the loss on their way to the engine."""

import contextlib

from .. import capi
from ..engine.values import engine_values, map_leaves, to_engine
from ..tensors.tensor_type import is_tensor


def pipeline_step(state, handle, inputs, targets, loss, is_torch):
    """Forward and backward; the loss of the batch. What the engine does not know of a batch is an error of all ranks along the axis."""
    name, function = (loss, None) if loss is None or isinstance(loss, str) else (None, _loss_of(loss, is_torch))
    try:
        inputs, targets = engine_values(inputs, "the inputs have"), engine_values(targets, "the targets have")
    except Exception as error:
        refused = error  # the name `error` ends with this block

        def refuse(*_):
            raise refused

        with contextlib.suppress(Exception):
            capi.accel_pipeline_step(state, handle, None, None, None, refuse)  # the ranks that wait hear of it
        raise
    return capi.accel_pipeline_step(state, handle, inputs, targets, name, function)


def _loss_of(function, is_torch):
    """The program's function of output and targets, which are tensors of torch for a model of torch."""
    def in_engine(*values):
        if is_torch:
            values = [map_leaves(value, is_tensor, _torch_tensor) for value in values]
        loss = to_engine(function(*values))
        if not is_tensor(loss):
            raise TypeError(f"the loss is a {type(loss).__name__}; expected a tensor with gradient history")
        return loss

    return in_engine


def _torch_tensor(tensor):
    from ..engine.bridge import to_torch  # imports torch

    return to_torch(tensor)
