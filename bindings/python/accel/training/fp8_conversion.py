# SPDX-License-Identifier: Apache-2.0
"""Layers of torch that compute in 8 bits by themselves, for programs that convert models without an Accelerator: each calls the engine's operator."""

import contextlib
import functools
import threading
import types

import torch

from .. import capi  # noqa: F401  (registers the engine's operators)
from ..generated.enums import FP8BackendType
from . import fp8_layers
from .prepared_forward import forward_of


class _Recipe(threading.local):
    """The format in which layers of Transformer Engine's recipe compute here; None: not in 8 bits."""

    format = None


_recipe = _Recipe()


class Fp8Linear(torch.nn.Linear):
    """A torch.nn.Linear whose products are of 8-bit numbers: always by torchao's recipe, by that of Transformer Engine inside a forward that
    contextual_fp8_autocast() made."""

    _fp8_backend = FP8BackendType.AO

    def forward(self, input):
        kind = "HYBRID" if self._fp8_backend == FP8BackendType.AO else _recipe.format
        return super().forward(input) if kind is None else torch.ops.accel.fp8_linear(input, self.weight, self.bias, format=kind)


def _convert(module, backend):
    module.__class__ = Fp8Linear  # stays the same object, with its parameters
    module._fp8_backend = backend


def convert_model_to_fp8_ao(model, config=None, module_filter_func=None):
    """Makes the linear layers of a model compute in 8 bits by torchao's recipe, but for the first and the last one; module_filter_func(module, name)
    chooses otherwise. `config` has no effect here: scales are those of each operand's numbers."""
    if module_filter_func is None:
        first_and_last = fp8_layers.find_first_last_linear_layers(model)
        module_filter_func = functools.partial(fp8_layers.filter_linear_layers, layers_to_filter=first_and_last)
    for name, module in model.named_modules():
        if type(module) is torch.nn.Linear and module_filter_func(module, name):
            _convert(module, FP8BackendType.AO)


def convert_model(model, to_transformer_engine=True, _convert_linear=True, _convert_ln=True):
    """Makes the linear layers whose sizes are multiples of 16 compute in 8 bits by Transformer Engine's recipe, or undoes that. Norms stay as they
    are, whatever _convert_ln is: they compute the same in either."""
    for module in filter(fp8_layers.is_linear, model.modules()) if _convert_linear else ():
        if not to_transformer_engine and isinstance(module, Fp8Linear):
            module.__class__ = torch.nn.Linear
            del module._fp8_backend
        elif to_transformer_engine and type(module) is torch.nn.Linear and fp8_layers.has_fitting_sizes(module):
            _convert(module, FP8BackendType.TE)


@contextlib.contextmanager
def _computing(kind):
    former, _recipe.format = _recipe.format, kind
    try:
        yield
    finally:
        _recipe.format = former


def contextual_fp8_autocast(model_forward, fp8_recipe, use_during_eval=False):
    """A forward in which the layers that convert_model() converted compute in 8 bits: in training, and with use_during_eval in evaluation, too.
    `fp8_recipe` sets fp8_format; scales are those of each operand's numbers."""
    kind = getattr(fp8_recipe, "fp8_format", None) or "HYBRID"

    def forward(self, *args, **kwargs):
        with _computing(str(getattr(kind, "name", kind)) if use_during_eval or self.training else None):
            return model_forward(*args, **kwargs)

    forward.__wrapped__ = model_forward  # so that it can be taken away
    return forward


def apply_fp8_autowrap(model, fp8_recipe_handler):
    """The model with a forward of contextual_fp8_autocast(). A prepared model computes by its Accelerator's recipe, and stays as it is."""
    if forward_of(model) is not None:
        return model
    if fp8_recipe_handler is not None:
        fp8_recipe_handler.to_engine()  # or an error
    use_during_eval = bool(getattr(fp8_recipe_handler, "use_autocast_during_eval", False))
    model.forward = types.MethodType(contextual_fp8_autocast(model.forward, fp8_recipe_handler, use_during_eval), model)
    return model
