# SPDX-License-Identifier: Apache-2.0
"""Checks of the types of arguments: an object of a wrong kind is one error, which says what came and what would be right."""

from .. import capi
from ..engine.torch_types import is_torch_model


def wrong_kind(function, thing, kind, expected):
    """The error of a function that got something else than a thing of this kind."""
    return TypeError(f"{function}(): a {type(thing).__name__} is not {kind}; expected {expected}")


def check_model(function, model):
    """The model, of accel or of torch."""
    if isinstance(getattr(model, "handle", None), capi.accel_module) or is_torch_model(model):
        return model
    raise wrong_kind(function, model, "a model", "one of accel or torch")


def engine_module(function, model):
    """The engine's module of a model of accel."""
    return check_model(function, model).handle
