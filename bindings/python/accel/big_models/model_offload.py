# SPDX-License-Identifier: Apache-2.0
"""Models of torch that move as a whole: to the device when they run, and back to the CPU when the next one does."""

import torch

from ..engine.bridge import not_traced
from ..modules.model_hooks import ModelHook, add_hook_to_module, remove_hook_from_module
from ..state.memory import clear_device_cache
from ..state.process import PartialState
from ..tensors.trees import send_to_device


class CpuOffload(ModelHook):
    """Moves a model to `execution_device` before its forward, where it stays; the former model of a pipeline, whose UserCpuOffloadHook is
    given, goes back to the CPU."""

    def __init__(self, execution_device=None, prev_module_hook=None):
        self.prev_module_hook = prev_module_hook
        self.execution_device = PartialState().default_device if execution_device is None else execution_device

    def init_hook(self, module):
        return module.to("cpu")

    @not_traced
    def pre_forward(self, module, *args, **kwargs):
        device = torch.device(self.execution_device)
        former = self.prev_module_hook
        if isinstance(former, UserCpuOffloadHook) and next(former.model.parameters()).device.type != "cpu":
            former.offload()
            clear_device_cache()
        if next(module.parameters()).device != device:
            module.to(device)
        return send_to_device(args, device), send_to_device(kwargs, device)


class UserCpuOffloadHook:
    """A model and its hook: offload() puts the model on the CPU, remove() takes the hook away."""

    def __init__(self, model, hook):
        self.model = model
        self.hook = hook

    def offload(self):
        self.hook.init_hook(self.model)

    def remove(self):
        remove_hook_from_module(self.model)


def cpu_offload_with_hook(model, execution_device=None, prev_module_hook=None):
    hook = CpuOffload(execution_device, prev_module_hook)
    add_hook_to_module(model, hook, append=True)
    return model, UserCpuOffloadHook(model, hook)
