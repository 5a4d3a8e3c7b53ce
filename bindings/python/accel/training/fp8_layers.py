# SPDX-License-Identifier: Apache-2.0
"""Which linear layers of a model compute in 8 bits: what programs say about it before, and what is so afterwards."""

import contextlib
import functools
import importlib.util
import sys
import threading

from .. import capi
from ..engine.torch_types import is_torch_model, torch_module
from ..generated.enums import FP8BackendType
from ..modules.module import Module

_MARK = "_fp8_backend"  # of a layer that computes in 8 bits, and of a prepared model of accel that has one: whose recipe
_MULTIPLE = 16  # of the sizes of such layers


def is_linear(module):
    """Whether it is a torch.nn.Linear, or one of accel."""
    torch = torch_module()
    if torch is not None and isinstance(module, torch.nn.Linear):
        return True
    return isinstance(module, Module) and capi.accel_module_kind(module.handle) == "Linear"


def has_fitting_sizes(module):
    """Whether both sizes of a linear layer are multiples of 16."""
    return all(size % _MULTIPLE == 0 for size in module.weight.shape)


def find_first_last_linear_layers(model):
    """The names of the first and the last linear layer of a model; None where there is none."""
    names = [name for name, module in model.named_modules() if is_linear(module)]
    return (names[0], names[-1]) if names else (None, None)


def filter_linear_layers(module, fqn, layers_to_filter):
    """Whether a layer may compute in 8 bits: its sizes are multiples of 16, and its name `fqn` is none of layers_to_filter."""
    return (not is_linear(module) or has_fitting_sizes(module)) and fqn not in layers_to_filter


def filter_first_and_last_linear_layers(module, fqn):
    """filter_linear_layers() without the first and the last linear layer of `module`. They are not known for a layer alone, as a
    module_filter_func gets it: the recipe leaves them out."""
    return filter_linear_layers(module, fqn, find_first_last_linear_layers(module))


def torchao_required(func):
    """A decorator of functions that need the package torchao."""
    @functools.wraps(func)
    def run(*args, **kwargs):
        if importlib.util.find_spec("torchao") is None:
            raise ImportError(f"{func.__name__} requires the package torchao")
        return func(*args, **kwargs)

    return run


def _has_layers(model, backend, kinds):
    """Whether a model has layers that compute by a recipe, or that are of classes of a package: one that is not imported made none."""
    found = (getattr(sys.modules.get(module), name, None) for module, name in kinds)
    known = tuple(kind for kind in found if isinstance(kind, type))
    parts = model.modules() if is_torch_model(model) else [model]
    return any(getattr(part, _MARK, None) == backend or isinstance(part, known) for part in parts)


def has_ao_layers(model):
    """Whether it has layers that compute in 8 bits by the recipe of torchao."""
    return _has_layers(model, FP8BackendType.AO, [("torchao.float8.float8_linear", "Float8Linear")])


def has_transformer_engine_layers(model):
    """Whether it has layers that compute in 8 bits by the recipe of Transformer Engine."""
    return _has_layers(model, FP8BackendType.TE, [("transformer_engine.pytorch", name) for name in ("LayerNorm", "Linear", "TransformerLayer")] +
                       [("intel_transformer_engine", "Linear")])


class _Preparing(threading.local):
    """The models that this thread prepares, the innermost last."""

    def __init__(self):
        self.models = []


_preparing = _Preparing()


@contextlib.contextmanager
def of_model(model):
    """Inside, a LayerFilter is asked about layers of this model."""
    _preparing.models.append(model)
    try:
        yield
    finally:
        _preparing.models.pop()


class LayerFilter:
    """The filter that the engine asks about each layer: of a model of torch nothing but a torch.nn.Linear, and what the program's function takes."""

    def __init__(self, wanted=None):
        self.wanted = wanted

    def __call__(self, name, _weight):
        model = _preparing.models[-1]
        try:
            module = model.get_submodule(name)
        except AttributeError:  # of the engine's own around the program's modules
            return None
        if is_torch_model(model) and not is_linear(module):
            return False
        return self.wanted is None or bool(self.wanted(module, name))


def mark(model, prepared, handle, backend):
    """Notes at the layers of a model, `prepared` with the engine's `handle`, which of them compute in 8 bits, and by whose recipe."""
    names = capi.accel_fp8_describe(handle).get("layers", ())
    if not is_torch_model(model):
        if names:
            object.__setattr__(prepared, _MARK, backend)
        return
    for name in names:
        with contextlib.suppress(AttributeError):  # of a stage, whose names are the engine's
            setattr(model.get_submodule(name), _MARK, backend)
