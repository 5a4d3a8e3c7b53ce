# SPDX-License-Identifier: Apache-2.0
"""Optimizers with the names of torch.optim, and `lr_scheduler`."""

from ..generated import optimizers
from ..generated.optimizers import *  # noqa: F403
from . import lr_scheduler
from .optimizer import Optimizer, ParamGroup, Prepared

__all__ = [*optimizers.__all__, "Optimizer", "ParamGroup", "Prepared", "lr_scheduler"]  # noqa: PLE0604
