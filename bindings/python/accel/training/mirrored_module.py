# SPDX-License-Identifier: Apache-2.0
"""Modules of torch in the engine: their parameters, buffers and children are the module's own, and are followed when they are replaced."""

import weakref

import torch
from torch.nn.modules import module as torch_module

from .. import capi
from ..generated import errors
from ..engine.bridge import from_torch


class Part:
    """A module of torch in the engine."""

    def __init__(self, module, is_chain=False):
        self.handle = _empty_chain() if is_chain else capi.accel_module_create(type(module).__name__)
        self.is_shared = False  # whether ranks exchange its gradients


followed: "weakref.WeakKeyDictionary[torch.nn.Module, Part]" = weakref.WeakKeyDictionary()


def _empty_chain():
    """A chain of the program's modules, which are added."""
    chain = capi.accel_pipeline_create([capi.accel_module_create("Part")])
    capi.accel_module_remove(chain, "0")
    return chain


def mirror(module: torch.nn.Module, mirrored: "dict | None" = None, chains=()):
    """The engine's module with the parameters, buffers and children of one of torch, themselves and not copies. `mirrored`: the parts that
    are made already, by their modules. `chains`: those whose children are parts of stages, each in its place."""
    mirrored = {} if mirrored is None else mirrored
    if module in mirrored:  # used at several places
        return mirrored[module].handle
    part = mirrored[module] = Part(module, module in chains)
    for name, parameter in module._parameters.items():
        if parameter is not None:
            capi.accel_module_add_parameter(part.handle, name, from_torch(parameter), int(parameter.requires_grad))
    for name, buffer in module._buffers.items():
        if buffer is not None:
            _add_buffer(part, module, name, buffer)
    for name, child in module._modules.items():
        if child is not None:
            is_again = module in chains and child in mirrored
            capi.accel_module_add_child(part.handle, name, mirror(child, {} if is_again else mirrored, chains))
    return part.handle


def _add_buffer(part, module, name, buffer):
    handle, (*below, own) = part.handle, name.split(".")
    for inner in below:  # scales are below their weight
        handle = _child(handle, inner)
    capi.accel_module_add_buffer(handle, own, from_torch(buffer), int(name not in module._non_persistent_buffers_set))


def _child(handle, name):
    try:
        return capi.accel_module_child(handle, name)
    except errors.NotFoundError:
        child = capi.accel_module_create("Module")
        capi.accel_module_add_child(handle, name, child)
        return child


def _follow_parameter(module, name, parameter):
    """Torch calls this when a module gets a parameter: that of a prepared model is replaced in the engine, too."""
    part = followed.get(module)
    if part is None or parameter is None or parameter is module._parameters.get(name):
        return
    if part.is_shared:
        raise RuntimeError(f"the parameter {name!r} of a {type(module).__name__} is set after prepare(), when the ranks exchange the gradients of "
                           "the former one; change the model before prepare(), or prepare it again")
    if module._parameters.get(name) is None:
        capi.accel_module_add_parameter(part.handle, name, from_torch(parameter), int(parameter.requires_grad))
    else:
        capi.accel_module_replace_tensor(part.handle, name, from_torch(parameter))


def _follow_buffer(module, name, buffer):
    part = followed.get(module)
    if part is None or buffer is None or buffer is module._buffers.get(name):
        return
    try:
        capi.accel_module_replace_tensor(part.handle, name, from_torch(buffer))
    except errors.NotFoundError:
        _add_buffer(part, module, name, buffer)


torch_module.register_module_parameter_registration_hook(_follow_parameter)
torch_module.register_module_buffer_registration_hook(_follow_buffer)
