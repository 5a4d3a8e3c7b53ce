# SPDX-License-Identifier: Apache-2.0
"""Finds torch's objects in a program, without importing torch: programs that do not use it pay nothing."""

import functools
import importlib
import sys


def torch_module():
    """The package torch, None where the program has not imported it."""
    return sys.modules.get("torch")


def is_torch_tensor(value):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_torch_model(value):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def is_torch_optimizer(value):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.optim.Optimizer)


def is_torch_scheduler(value):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.optim.lr_scheduler.LRScheduler)


def is_torch_loader(value):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.utils.data.DataLoader)


def with_torch(module):
    """A decorator of a function of the package: where it is called with a model of torch, it is the function of its name in this other module of the
    package, which imports torch."""
    def chosen(function):
        @functools.wraps(function)
        def called(*args, **kwargs):
            if any(map(is_torch_model, (*args, *kwargs.values()))):
                return getattr(importlib.import_module(module, __package__), function.__name__)(*args, **kwargs)
            return function(*args, **kwargs)

        return called

    return chosen
