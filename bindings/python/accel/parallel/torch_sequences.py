# SPDX-License-Identifier: Apache-2.0
"""Models of torch on parts of sequences. The engine's attention stands in for torch's where it is called; hooks give a model of transformers
its positions, and leave out masks that say no more than that attention is causal."""

import inspect
import re

import torch

from .. import capi
from ..engine.bridge import to_torch
from . import split_sequences

_UNSUPPORTED = re.compile(r" has a (mask|dropout)| has keys | has \d+ queries | has no second derivative| on ")
_PATH = re.compile(r"^in '[^']*': ")  # inside of a module that is sharded by itself


def check(model):
    """Refuses attention that is not of whole sequences, or that the engine cannot stand in for."""
    split_sequences.require_full_attention(model)
    config = getattr(model, "config", None)
    name = getattr(config, "_attn_implementation", None)
    if name in ("eager", "flex_attention"):
        raise ValueError(f"{type(model).__name__} has attn_implementation={name!r}, which does not call scaled_dot_product_attention: expected 'sdpa'")
    if name not in (None, "sdpa"):
        model.set_attn_implementation("sdpa")


def add_hooks(model, state):
    """For a model that is about to be prepared; hooks act on parts of sequences only."""
    check(model)
    model.register_forward_pre_hook(_Inputs(model, state), with_kwargs=True)
    for module in model.modules():
        if "attention_mask" in _names(module) and getattr(module, "is_causal", None) is True:
            module.register_forward_pre_hook(_without_mask, with_kwargs=True, prepend=True)
        recompute = vars(module).get("_gradient_checkpointing_func")
        if recompute is not None:
            module._gradient_checkpointing_func = _follows(recompute)


def _names(module):
    return list(inspect.signature(module.forward).parameters)


def _follows(checkpoint):
    return lambda function, *args, **kwargs: checkpoint(split_sequences.following(function), *args, **kwargs)


def _without_mask(_module, args, kwargs):
    if split_sequences.are_split() and kwargs.get("attention_mask") is not None:
        return args, {**kwargs, "attention_mask": None}
    return None


def _shifts_labels(model):
    return getattr(getattr(model, "loss_function", None), "__name__", "") == "ForCausalLMLoss"


class _Inputs:
    """Checks the inputs of a model, and adds the positions of this rank where the caller gives none."""

    def __init__(self, model, state):
        self.names, self.state, self.ranks = _names(model), state, split_sequences.ranks_of(state)

    def __call__(self, module, args, kwargs):
        if not split_sequences.are_split():
            return None
        given = {**dict(zip(self.names, args)), **kwargs}
        if given.get("labels") is not None and given.get("shift_labels") is None and _shifts_labels(module):
            raise ValueError(f"{type(module).__name__} got labels, which it would shift inside of this rank's part of the sequence: expected "
                             "shift_labels besides, which were shifted before they were split")
        if "position_ids" not in self.names[len(args):] or given.get("position_ids") is not None:
            return None
        tokens = next((given[name] for name in ("input_ids", "inputs_embeds") if isinstance(given.get(name), torch.Tensor)), None)
        if tokens is None:
            return None
        positions = to_torch(capi.accel_context_parallel_positions(self.state, tokens.shape[1] * self.ranks))
        return args, {**kwargs, "position_ids": positions.to(tokens.device).unsqueeze(0)}


def at_layer(error):
    """An error of attention with the path of the layer that called it, as a NotImplementedError where the attention could not be computed so
    at all; other errors as they are."""
    _, marker, reason = str(error).partition("attention over a split sequence")
    if not marker:
        return error
    called, trace = [], error.__traceback__
    while trace is not None:
        owner = trace.tb_frame.f_locals.get("self")
        called += [owner] if isinstance(owner, torch.nn.Module) else []
        trace = trace.tb_next
    path = next((name for name, module in called[0].named_modules() if module is called[-1]), "") if called else ""
    if not path:
        return error
    if _UNSUPPORTED.match(reason):
        return NotImplementedError(f"in {path!r}: {marker}{reason}").with_traceback(error.__traceback__)
    error.args = (f"in {path!r}: {_PATH.sub('', str(error))}",)
    return error
