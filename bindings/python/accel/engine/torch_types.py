"""What is torch's among the objects of a program, without importing torch: programs that do not use it pay nothing."""

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
