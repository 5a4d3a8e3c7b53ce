"""Whether the device computes after what programs do first: order.py WORDS, joined by `_`: nothing, seed, generator, backward, torch."""

import sys

import accel
from accel import Accelerator, nn
from result import DEVICE, require


def backward():
    """On the CPU, before there is a state."""
    layer = nn.Linear(4, 4)
    layer(accel.ones(2, 4)).sum().backward()


def torch():
    import torch

    layer = torch.nn.Linear(4, 4)
    layer(torch.ones(2, 4)).sum().backward()


FIRST = {"nothing": lambda: None, "seed": lambda: accel.set_seed(0), "generator": lambda: accel.Generator().manual_seed(1), "backward": backward,
         "torch": torch}

for word in sys.argv[1].split("_"):
    FIRST[word]()
accelerator = Accelerator()
require(accelerator.device.type == DEVICE, f"the state is on {accelerator.device}; expected a {DEVICE}")
model = nn.Linear(8, 1)
rows = accel.ones(2, 8)
expected = model(rows).sum().item()
model = accelerator.prepare(model)
loss = model(rows.to(accelerator.device)).sum()
accelerator.backward(loss)
gradients = [parameter.grad for parameter in model.parameters()]
require(all(gradient.device.type == DEVICE for gradient in gradients), "a gradient is not on the device")
require([gradient.to("cpu").flatten().tolist() for gradient in gradients] == [[2.0] * 8, [2.0]], "the gradients are wrong")
require(abs(loss.item() - expected) <= 1e-4 * max(1, abs(expected)), f"the loss is {loss.item()}, on the CPU {expected}")
print(sys.argv[1], "then the state works on", accelerator.device)
