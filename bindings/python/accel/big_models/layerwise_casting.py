# SPDX-License-Identifier: Apache-2.0
"""Layers of torch whose weights are stored in a smaller dtype than they compute in."""

import re

from ..compat import constants
from ..engine.bridge import not_traced
from ..modules.model_hooks import ModelHook, add_hook_to_module


class LayerwiseCastingHook(ModelHook):
    """Weights have `storage_dtype`, and `compute_dtype` during the forward."""

    _is_stateful = False

    def __init__(self, storage_dtype, compute_dtype, non_blocking):
        self.storage_dtype = storage_dtype
        self.compute_dtype = compute_dtype
        self.non_blocking = non_blocking

    def _store(self, module):
        return module.to(dtype=self.storage_dtype, non_blocking=self.non_blocking)

    def init_hook(self, module):
        return self._store(module)

    @not_traced
    def pre_forward(self, module, *args, **kwargs):
        module.to(dtype=self.compute_dtype, non_blocking=self.non_blocking)
        return args, kwargs

    @not_traced
    def post_forward(self, module, output):
        self._store(module)
        return output

    def forward_failed(self, module):
        self._store(module)


def attach_layerwise_casting_hooks(module, storage_dtype, compute_dtype, skip_modules_pattern=None, skip_modules_classes=None, non_blocking=False):
    patterns = (skip_modules_pattern,) if isinstance(skip_modules_pattern, str) else tuple(skip_modules_pattern or ())
    classes = tuple(skip_modules_classes) if isinstance(skip_modules_classes, list) else skip_modules_classes or ()
    _attach(module, "", (storage_dtype, compute_dtype, non_blocking), patterns, classes)


def _attach(module, path, settings, patterns, classes):
    if isinstance(module, classes) or any(re.search(pattern, path) for pattern in patterns):
        return
    if isinstance(module, constants.SUPPORTED_PYTORCH_LAYERS_FOR_UPCASTING):
        add_hook_to_module(module, LayerwiseCastingHook(*settings), append=True)
        return
    for name, child in module.named_children():
        _attach(child, f"{path}.{name}" if path else name, settings, patterns, classes)
