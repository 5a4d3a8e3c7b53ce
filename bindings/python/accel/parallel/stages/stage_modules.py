# SPDX-License-Identifier: Apache-2.0
"""Changes of modules of torch for their stage: their device, and what they compute during a call."""

import contextlib

import torch


def place(module, left_out, device):
    """Moves the tensors of a module to a device, but those of some modules below it."""
    if module in left_out:
        return
    for tensor in (*module._parameters.values(), *module._buffers.values()):
        if tensor is not None and tensor.device != device and not tensor.is_meta:
            tensor.data = tensor.data.to(device)
    for child in module.children():
        place(child, left_out, device)


@contextlib.contextmanager
def forward_of(module, forward):
    """Another forward of a module, until the end."""
    former = vars(module).get("forward")
    module.forward = forward
    try:
        yield
    finally:
        if former is None:
            del module.forward
        else:
            module.forward = former


@contextlib.contextmanager
def without_cache(model):
    """A model of transformers keeps no keys inside, unless it is asked to."""
    config = getattr(model, "config", None)
    kept = getattr(config, "use_cache", None)
    if kept:
        config.use_cache = False
    try:
        yield
    finally:
        if kept:
            config.use_cache = kept


@contextlib.contextmanager
def without_checkpoint(block):
    """A block that checkpoints around its forward, as those of transformers 4 do, keeps its activations: what is left before its end, or replaced, cannot be
    computed again. One that checkpoints inside of its forward goes on."""
    kept = type(block).__call__ is not torch.nn.Module.__call__ and getattr(block, "gradient_checkpointing", False)
    if kept:
        block.gradient_checkpointing = False
    try:
        yield
    finally:
        if kept:
            block.gradient_checkpointing = kept
