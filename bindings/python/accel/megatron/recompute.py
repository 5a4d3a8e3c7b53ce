# SPDX-License-Identifier: Apache-2.0
"""Layers whose forwards are computed again in the backward, as recompute_* say."""

import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from ..parallel import split_sequences

_aten = torch.ops.aten
_KEPT = {operator for operator in (
    _aten.mm.default, _aten.addmm.default, _aten.bmm.default, _aten.baddbmm.default,
    getattr(_aten, "_scaled_dot_product_flash_attention_for_cpu", None) and _aten._scaled_dot_product_flash_attention_for_cpu.default,
    getattr(_aten, "_scaled_dot_product_flash_attention", None) and _aten._scaled_dot_product_flash_attention.default,
    getattr(_aten, "_scaled_dot_product_efficient_attention", None) and _aten._scaled_dot_product_efficient_attention.default) if operator is not None}


def _policy(_context, operator, *_args, **_kwargs):
    return CheckpointPolicy.MUST_SAVE if operator in _KEPT else CheckpointPolicy.PREFER_RECOMPUTE


def _contexts():
    return create_selective_checkpoint_contexts(_policy)


def layers_of(model):
    """The layers of a model of transformers: the modules of the classes that it does not split between devices, in their order."""
    names = set(getattr(model, "_no_split_modules", None) or ())
    return [module for module in model.modules() if type(module).__name__ in names]


def chosen(layers, plugin):
    """The modules that are computed again, and whether the results of their products are saved. Nothing unless it was asked for:
    recompute_granularity is "full" where nobody says so."""
    if "recompute_granularity" in plugin.said:
        is_selective = plugin.recompute_granularity == "selective"
    elif plugin.recompute_activations:
        is_selective = True
    else:
        return [], False
    number = plugin.recompute_num_layers
    if is_selective:
        return layers, True
    return (layers[:number] if plugin.recompute_method == "block" else layers[::number]), False


def apply(model, plugin):
    """Sets up recomputation in a model that is not prepared yet."""
    layers = layers_of(model)
    found, is_selective = chosen(layers, plugin)
    if not layers and chosen([None], plugin)[0]:
        raise ValueError(f"recompute_granularity, recompute_activations: {type(model).__name__} does not say which of its modules are layers; expected a "
                         "model with _no_split_modules, or checkpoint() in its forward")
    for layer in found:
        layer.forward = _again(layer.forward, is_selective)


def _again(forward, is_selective):
    def run(*args, **kwargs):
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        chosen_contexts = {"context_fn": _contexts} if is_selective else {}
        return checkpoint(split_sequences.following(forward), *args, use_reentrant=False, **chosen_contexts, **kwargs)

    return run
