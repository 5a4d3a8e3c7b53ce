# SPDX-License-Identifier: Apache-2.0
"""Activations, losses and containers with the names of torch.nn, beside the layers that are generated."""

import json
import os
from collections.abc import Mapping

from .. import capi
from ..generated import layers
from ..generated.layers import *  # noqa: F403
from ..state.options import fill
from ..tensors import ops
from .module import Layer, Module
from .quantization import quantization_options

BatchNorm1d = BatchNorm2d = BatchNorm3d = layers.BatchNorm


class _Activation(Layer):
    name = ""

    def __init__(self, *_, **__):
        super().__init__(capi.accel_module_activation(self.name))


class ReLU(_Activation):
    name = "relu"


class SiLU(_Activation):
    name = "silu"


class Tanh(_Activation):
    name = "tanh"


class Sigmoid(_Activation):
    name = "sigmoid"


class GELU(_Activation):
    def __init__(self, approximate="none"):
        object.__setattr__(self, "name", "gelu_new" if approximate == "tanh" else "gelu")
        super().__init__()


class Flatten(Module):
    def __init__(self, start_dim=1, end_dim=-1):
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x):
        return ops.flatten(x, self.start_dim, self.end_dim)


class CrossEntropyLoss:
    """Mean cross entropy of logits; label -100 is left out."""

    def __call__(self, logits, labels):
        return capi.accel_cross_entropy(logits, labels)


class MSELoss:
    def __call__(self, output, target):
        return ops.mse_loss(output, target)


class Sequential(Layer):
    """Modules one after the other."""

    _is_made_of_parts = True
    _create = staticmethod(capi.accel_module_sequential)

    def __init__(self, *modules):
        super().__init__(self._create([module.handle for module in modules]))
        self._hold(modules)

    def _hold(self, modules):
        self._modules.update({str(place): module for place, module in enumerate(modules)})

    def __getitem__(self, place):
        return list(self._modules.values())[place]

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules.values())


class Pipeline(Sequential):
    """A model as a chain of parts, with forwards in any language: ranks along the axis `pipeline` get runs of them."""

    _create = staticmethod(capi.accel_pipeline_create)


class ModuleList(Sequential):
    """Modules that a forward goes through by itself."""

    def __init__(self, modules=()):
        Module.__init__(self)
        object.__setattr__(self, "_shown", {})
        for module in modules:
            self.append(module)

    def append(self, module):
        self.add_module(str(len(self)), module)
        return self


def from_config(config):
    """A model from the configuration of a Hugging Face model: a mapping, or the path of a config.json, or its text. docs/models.md lists them.
    Decoders take the keys and values of earlier tokens as their second argument: a list that is empty at first, then what the call before gave with
    the logits; `generate()` does that."""
    if not isinstance(config, (str, os.PathLike, Mapping)):
        raise TypeError(f"from_config() got a {type(config).__name__}; expected a mapping such as {{'model_type': 'gpt2'}}, its JSON, or the path of a file with it")
    text = json.dumps(dict(config)) if isinstance(config, Mapping) else str(config)
    return _made_by(from_config, capi.accel_module_from_config(text), text)


def from_folder(folder, quantization=None):
    """The model of a folder of Hugging Face with its weights, on the CPU and in the dtype of its files: for training call `float()`, or `to(accel.float32)`.
    `quantization` quantizes weights as they are read, one at a time: "nf4", or fields of accel_quantization_options_t as `{"kind": "nf4", "group": 64}`."""
    made = capi.accel_module_from_folder(os.fspath(folder), quantization_options(quantization))
    return _made_by(from_folder, made, folder, quantization=quantization)


def sentence_embedding(encoder, *, pooling="mean", normalize=True):
    """An encoder whose hidden states become one vector for each sequence: `pooling` is "mean", "first", "last" or "max"."""
    options = fill(capi.accel_sentence_embedding_options_t(), {"pooling": pooling, "normalize": normalize})
    return _made_by(sentence_embedding, capi.accel_module_sentence_embedding(encoder.handle, options), encoder, pooling=pooling, normalize=normalize)


def load_torchscript(path, *, device=None, optimize_for_inference=False):
    """A model that Python saved with torch.jit. `optimize_for_inference` freezes it: it has no parameters then, and cannot be trained."""
    options = capi.accel_torchscript_options_t()
    options.device, options.optimize_for_inference = device and str(device), int(optimize_for_inference)
    return _made_by(load_torchscript, capi.accel_module_load_torchscript(str(path), options), str(path), device=device,
                    optimize_for_inference=optimize_for_inference)


def from_package(path, *, model_name=None, device=None, concurrent_calls=1):
    """A model for inference of a package (.pt2) of AOTInductor, which `accel compile` and torch._inductor.aoti_compile_and_package() make."""
    options = capi.accel_package_options_t()
    options.model_name, options.device, options.concurrent_calls = model_name, device and str(device), concurrent_calls
    return _made_by(from_package, capi.accel_module_from_package(str(path), options), str(path), model_name=model_name, device=device,
                    concurrent_calls=concurrent_calls)


def _made_by(function, handle, *arguments, **named):
    made = Module.of_handle(handle)
    made.__dict__.update(_make=function, _arguments=(arguments, named))  # for copies
    return made
