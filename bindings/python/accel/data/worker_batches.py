# SPDX-License-Identifier: Apache-2.0
"""Batches on their way from a loader's worker processes.

Torch puts each tensor of a batch into shared memory, and asks the worker for its file: several messages for each tensor, which cost more
than the batch. Tensors of up to `INLINE_BYTES` travel inside the message here; larger ones go torch's way.
"""

import copy
import io
import pickle
import traceback
from multiprocessing.reduction import ForkingPickler

import torch
from torch.utils.data._utils.collate import collate, collate_tensor_fn, default_collate, default_collate_fn_map
from torch.utils.data._utils.pin_memory import pin_memory

from .filled_batches import FillingUp

INLINE_BYTES = 1 << 18


class _Pickler(ForkingPickler):
    def reducer_override(self, value):
        if (type(value) is torch.Tensor and value.nbytes <= INLINE_BYTES and value.is_cpu and value.layout is torch.strided
                and not value.is_quantized and not value.requires_grad and not value.is_conj() and not value.is_neg()):
            return _tensor, (bytearray(value.contiguous().view(-1).view(torch.uint8).numpy()), value.dtype, value.shape)
        return NotImplemented


def _tensor(data, dtype, shape):
    return torch.frombuffer(data, dtype=dtype).view(shape) if data else torch.empty(shape, dtype=dtype)


class Packed:
    """A batch in one message."""

    def __init__(self, batch):
        message = io.BytesIO()
        _Pickler(message, pickle.HIGHEST_PROTOCOL).dump(batch)
        self.message = message.getvalue()

    def unpacked(self):
        return pickle.loads(self.message)

    def pin_memory(self):  # in torch's thread for that
        return pin_memory(self.unpacked())


def received(batches):
    """The batches of an iterator of torch over a loader of packing()."""
    try:
        for batch in batches:
            yield batch.unpacked() if type(batch) is Packed else batch
    except Exception as failure:  # torch's frames keep each other, and the workers, until garbage is collected
        traceback.clear_frames(failure.__traceback__)
        raise


class _Packing:
    """A collate function whose batches are packed."""

    def __init__(self, collate_fn):
        self.collate_fn = _without_shared_memory(collate_fn)

    def __call__(self, items):
        return Packed(self.collate_fn(items))


def _without_shared_memory(collate_fn):
    if isinstance(collate_fn, FillingUp):
        return FillingUp(_without_shared_memory(collate_fn.collate_fn), collate_fn.size)
    return _collate if collate_fn is default_collate else collate_fn


def _collate(items):
    """Collates like default_collate(), which in workers makes tensors in shared memory."""
    return collate(items, collate_fn_map={**default_collate_fn_map, torch.Tensor: _stack})


def _stack(tensors, *, collate_fn_map):
    first = tensors[0]
    if first.is_nested or first.layout is not torch.strided or first.nbytes * len(tensors) > INLINE_BYTES:
        return collate_tensor_fn(tensors, collate_fn_map=collate_fn_map)
    return torch.stack(tensors)


def packing(dataloader):
    """A loader over the same data whose batches come packed from its workers."""
    reader = copy.copy(dataloader)
    reader.collate_fn = _Packing(dataloader.collate_fn)
    return reader
