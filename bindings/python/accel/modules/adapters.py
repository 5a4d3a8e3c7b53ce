# SPDX-License-Identifier: Apache-2.0
"""Adapters: which of them act in calls. Models have the methods that add, train and merge them."""

from .. import capi
from ..engine.scopes import scope


def use_adapters(*names):
    """Within it, these adapters act in place of the active ones, in calls of this thread and in all models that have them; without names none does. A
    context and a decorator."""
    return scope(capi.accel_use_adapters_begin, list(names))
