# SPDX-License-Identifier: Apache-2.0
"""Functions of tensors as torch.nn.functional has them; every operator of LibTorch is here too."""

from ..generated.methods import cross_entropy  # noqa: F401  (a name of torch)
from . import ops


def dropout(x, p=0.5, training=True):
    return ops.dropout(x, p, training)


def mse_loss(output, target, reduction="mean"):
    return ops.mse_loss(output, target, {"none": 0, "mean": 1, "sum": 2}[reduction])


def softmax(x, dim=-1, dtype=None):
    return ops.softmax(x, dim) if dtype is None else ops.softmax(x, dim, dtype=dtype)


def log_softmax(x, dim=-1, dtype=None):
    return ops.log_softmax(x, dim) if dtype is None else ops.log_softmax(x, dim, dtype=dtype)


def __getattr__(name):
    return getattr(ops, name)


def __dir__():
    return sorted({*globals(), *dir(ops)})
