# SPDX-License-Identifier: Apache-2.0
"""Models of torch that are made on another device, or without memory."""

import contextlib
import functools

import torch

from .torch_module_tensors import parameter_like


def made_on(device, include_buffers):
    """A scope in which parameters come to a device as they are registered; with `include_buffers` all tensors are made there."""
    device = torch.device(device)
    return device if include_buffers else _parameters_on(device)


@contextlib.contextmanager
def _parameters_on(device):
    former = torch.nn.Module.register_parameter
    register = getattr(former, "__wrapped__", former)  # the innermost scope counts

    @functools.wraps(register)
    def register_on_device(module, name, parameter):
        register(module, name, parameter)
        made = module._parameters[name]
        if made is not None and made.device != device:
            module._parameters[name] = parameter_like(made, made.detach().to(device))

    torch.nn.Module.register_parameter = register_on_device
    try:
        yield
    finally:
        torch.nn.Module.register_parameter = former
