# SPDX-License-Identifier: Apache-2.0
"""Objects that change what goes into a module and what comes out of it, one for each module."""

import functools
import types

from .. import capi
from ..engine.torch_types import is_torch_model, torch_module


_GUARDED = ("to", "cuda")  # what a dispatched model refuses


class ModelHook:
    """Methods that a subclass does not define change nothing. With `no_grad` the forward between the two functions records no gradients."""

    no_grad = False

    def init_hook(self, module):
        """When the hook is added; the module."""
        return module

    def pre_forward(self, module, *args, **kwargs):
        """Before forward; its arguments."""
        return args, kwargs

    def post_forward(self, module, output):
        """After forward; its output."""
        return output

    def forward_failed(self, module):
        """After a forward that raised an error, in the place of post_forward()."""

    def detach_hook(self, module):
        """When the hook is removed; the module."""
        return module


class SequentialHook(ModelHook):
    """Several hooks, each of which gets what the former one gave."""

    def __init__(self, *hooks):
        self.hooks = hooks

    def init_hook(self, module):
        for hook in self.hooks:
            module = hook.init_hook(module)
        return module

    def pre_forward(self, module, *args, **kwargs):
        for hook in self.hooks:
            args, kwargs = hook.pre_forward(module, *args, **kwargs)
        return args, kwargs

    def post_forward(self, module, output):
        for hook in self.hooks:
            output = hook.post_forward(module, output)
        return output

    def forward_failed(self, module):
        for hook in self.hooks:
            hook.forward_failed(module)

    def detach_hook(self, module):
        for hook in self.hooks:
            module = hook.detach_hook(module)
        return module


def add_hook_to_module(module, hook, append=False):
    """Adds a hook in the place of the one that is there, or with `append` behind it. The module. A copy of it has no hook."""
    former = getattr(module, "_hf_hook", None)
    if append and former is not None:
        remove_hook_from_module(module)
        hook = SequentialHook(former, hook)
    elif former is not None:
        _take_away(module)
    module = hook.init_hook(module)
    module._hf_hook = hook
    if is_torch_model(module):
        _wrap_forward(module, hook)
        return module
    module._hf_handles = (module.register_forward_pre_hook(_before, with_kwargs=True), module.register_forward_hook(_after))
    capi.accel_module_set_no_grad(module.handle, int(hook.no_grad))
    return module


def _wrap_forward(module, hook):
    """For a module of torch: its forward is called between the functions of the hook. A module that torch.fx made has its forward in a class
    of its own, where its graph renews it."""
    module._old_forward = forward = module.forward
    holder = type(module) if _is_graph(module) else module
    holder.forward = functools.update_wrapper(functools.partial(_hooked_forward, module), forward)


def _is_graph(module):
    return type(module).__name__ == "GraphModuleImpl"


def _hooked_forward(module, *args, **kwargs):
    hook = module._hf_hook
    try:
        args, kwargs = hook.pre_forward(module, *args, **kwargs)
        if hook.no_grad:
            with torch_module().no_grad():
                output = module._old_forward(*args, **kwargs)
        else:
            output = module._old_forward(*args, **kwargs)
    except BaseException:
        hook.forward_failed(module)
        raise
    return hook.post_forward(module, output)


def _before(module, args, kwargs):
    return module._hf_hook.pre_forward(module, *args, **kwargs)


def _after(module, output):
    return module._hf_hook.post_forward(module, output)


def remove_hook_from_module(module, recurse=False):
    """Takes the hook of a module away, and with `recurse` those of all below it. The module."""
    hook = getattr(module, "_hf_hook", None)
    if hook is not None:
        hook.detach_hook(module)
        _take_away(module)
    if is_torch_model(module):
        for name in _GUARDED:
            vars(module).pop(name, None)
    else:
        capi.accel_remove_dispatch(module.handle, int(recurse))
    for child in module.children() if recurse else ():
        remove_hook_from_module(child, recurse)
    return module


def remove_hook_from_submodules(module):
    """Takes the hooks of a module and of all below it away."""
    remove_hook_from_module(module, recurse=True)


def _take_away(module):
    if is_torch_model(module):
        if _is_graph(module):
            type(module).forward = getattr(module._old_forward, "__func__", module._old_forward)
        elif module._old_forward == types.MethodType(type(module).forward, module):
            vars(module).pop("forward", None)  # that of the class is back
        else:
            module.forward = module._old_forward
        del module._hf_hook, module._old_forward
        return
    for handle in module._hf_handles:
        handle.remove()
    capi.accel_module_set_no_grad(module.handle, 0)
    del module._hf_hook, module._hf_handles
