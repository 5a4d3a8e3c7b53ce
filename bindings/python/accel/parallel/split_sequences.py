# SPDX-License-Identifier: Apache-2.0
"""Sequences that are split over the ranks of cp or sp: how, by the job's settings, and the scope in which they are."""

import contextlib
import logging
import os
import threading

from .. import capi
from ..engine.scopes import scope
from ..engine.values import to_engine

_logger = logging.getLogger(__name__)
_OTHER_LAYERS = ("chunked_attention", "linear_attention", "sliding_attention")


class _Thread(threading.local):
    depth = 0  # of scopes


_thread = _Thread()


def require_full_attention(model):
    """Refuses a model of transformers with layers that do not attend to the whole sequence: a state that runs along it, such as that of linear
    attention, would stop at the first position of a rank, and the gradients would be wrong without a sign of it."""
    config = getattr(model, "config", None)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    others = sorted({kind for kind in getattr(text, "layer_types", None) or () if kind in _OTHER_LAYERS})
    if others:
        raise ValueError(f"{type(model).__name__} has layers with {', '.join(others)}, which cannot be split along the sequence: expected full attention")


def are_of_ulysses(config) -> bool:
    """Whether each call of a model attends to whole sequences, by the sizes of a ParallelismConfig, or by the engine's variable without one."""
    return (os.environ.get("PARALLELISM_CONFIG_SP_SIZE") or "1" if config is None else str(config.sp_size)) != "1"


def options(config, changed):
    """The engine's options for a model: those of a ParallelismConfig, or None, with other values of some fields."""
    fields = {}
    if are_of_ulysses(config):
        fields = {"method": capi.ACCEL_CONTEXT_METHOD_ULYSSES, "inputs_are_split": 1}
        if config is not None and config.sp_handler is not None and not config.sp_handler.sp_seq_length_is_variable:
            fields |= {"variable_length": 0, "sequence_length": config.sp_handler.sp_seq_length}
    elif config is not None and config.cp_size > 1:
        passes_blocks = config.cp_handler is not None and config.cp_handler.cp_comm_strategy != "allgather"
        fields = {"method": capi.ACCEL_CONTEXT_METHOD_RING if passes_blocks else capi.ACCEL_CONTEXT_METHOD_ALL_GATHER}
    return capi.accel_context_parallel_options_t(**{**fields, **(changed or {})})


def ranks_of(state) -> int:
    """How many ranks share each sequence."""
    return capi.accel_mesh_size(capi.accel_state_mesh(state), "context")


def are_split() -> bool:
    """Whether this thread has parts of sequences now."""
    return _thread.depth > 0


@contextlib.contextmanager
def noted():
    """Marks that this thread has parts of sequences inside."""
    _thread.depth += 1
    try:
        yield
    finally:
        _thread.depth -= 1


@contextlib.contextmanager
def opened(state, buffers=(), dims=(), kept=()):
    """Inside, the buffers show this rank's positions, and attention is of whole sequences; what is not `kept` is whole again afterwards."""
    buffers, dims = list(buffers), list(dims)
    if len(buffers) != len(dims):
        raise ValueError(f"there are {len(buffers)} buffers and {len(dims)} buffer_seq_dims: expected a dimension for each")
    with scope(capi.accel_context_parallel_begin, state, list(map(to_engine, buffers)), dims, list(map(to_engine, kept))), noted():
        yield


_has_warned = False


def warn_without_effect():
    """One warning for a program that splits sequences where nothing does."""
    global _has_warned
    if not _has_warned:
        _has_warned = True
        _logger.warning("maybe_context_parallel() has no effect: context parallelism is not configured")


def following(function):
    """A function that runs later, such as a recomputation, on parts of sequences if this thread has some now."""
    if not are_split():
        return function
    from ..state.job import current

    def run(*args, **kwargs):
        if are_split():
            return function(*args, **kwargs)
        with opened(current()):
            return function(*args, **kwargs)

    return run
