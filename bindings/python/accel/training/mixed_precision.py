# SPDX-License-Identifier: Apache-2.0
"""Functions that programs with a training step of their own take from torch, chosen as the job's precision says."""

import contextlib

import torch

from ..state.process import AcceleratorState


def get_mixed_precision_context_manager(native_amp=False, autocast_kwargs=None):
    """torch.autocast on the job's device in its precision, without which operators choose that of torch; nothing without native_amp."""
    if not native_amp:
        return contextlib.nullcontext()
    settings = {} if autocast_kwargs is None else autocast_kwargs.to_kwargs()
    state = AcceleratorState()
    kind = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp8": torch.bfloat16}.get(state.mixed_precision)
    return torch.autocast(state.device.type, **settings, **({} if kind is None else {"dtype": kind}))


def get_grad_scaler(distributed_type=None, **kwargs):
    """A scaler of torch for a step that the program writes itself; accelerator.backward() scales by one of the engine. Its gradients of sharded
    models are those of this rank's rows, so that ranks may skip different steps: for those take `accelerator.scaler`."""
    if str(distributed_type).endswith("FSDP"):
        raise ValueError("get_grad_scaler(distributed_type=FSDP): a scaler of torch does not know the rows of the other ranks; take accelerator.scaler")
    return torch.amp.GradScaler(AcceleratorState().device.type, **kwargs)
