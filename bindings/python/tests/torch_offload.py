# SPDX-License-Identifier: Apache-2.0
"""Models of torch whose weights are offloaded from a simulated accelerator compute what they do on the CPU; their weights come ahead. Run by
test_torch_big_models.py in a process with ACCEL_DEVICE_PLUGINS."""

import simulated_torch
import torch

import accel
from simulated_torch import DEVICE


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(16, 32)
        self.outer = torch.nn.Linear(32, 16)

    def forward(self, x):
        return x + self.outer(torch.nn.functional.gelu(self.inner(x)))


def new_model():
    return torch.nn.Sequential(*(Block() for _ in range(6))).eval()


def streams_of(model):
    hooks = [getattr(module, "_hf_hook", None) for module in model.modules()]
    return {hook._stream for hook in hooks if getattr(hook, "offload", False)}


def check(model, offload, expected, inputs):
    offload(model)
    streams = streams_of(model)
    assert len(streams) == 1 and None not in streams, streams
    for _ in range(3):
        assert torch.equal(model(inputs.to(DEVICE)).cpu(), expected)
    assert next(reversed(list(model.parameters()))).device.type == "meta"


def main():
    simulated_torch.register()
    inputs = torch.linspace(-1, 1, 48).reshape(3, 16)
    spread = {"0": DEVICE, "1": DEVICE, "2": "cpu", "3": "cpu", "4": "cpu", "5": "cpu"}
    for offload in (lambda model: accel.cpu_offload(model, DEVICE), lambda model: accel.dispatch_model(model, spread)):
        model = new_model()
        with torch.no_grad():
            check(model, offload, model(inputs), inputs)
    # The same gradient of the inputs as on the CPU, through weights that are away again.
    model = new_model().requires_grad_(False)
    gradients = []
    for device in ("cpu", DEVICE):
        if device == DEVICE:
            accel.cpu_offload(model, DEVICE)
        x = inputs.clone().requires_grad_()
        model(x.to(device)).square().sum().backward()
        gradients.append(x.grad)
    assert torch.equal(*gradients)
    # A forward that fails leaves nothing in use.
    try:
        model(torch.ones(3, 5, device=DEVICE))
        raise AssertionError("a wrong shape is an error")
    except RuntimeError:
        pass
    with torch.no_grad():
        assert model(inputs.to(DEVICE)).shape == inputs.shape
    accel.hooks.remove_hook_from_submodules(model)
    assert all(parameter.device.type == "cpu" for parameter in model.parameters())
    print("equal")


if __name__ == "__main__":
    main()
