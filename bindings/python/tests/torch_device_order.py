"""A device computes gradients whatever ran a backward before it was there, under torch's engine of autograd: torch_device_order.py STEP..."""

import sys

import accel
from accel import nn

for step in sys.argv[1:]:
    if step == "backward":
        nn.Linear(4, 4)(accel.ones(2, 4)).sum().backward()
    elif step == "torch":
        import torch
    else:  # torch's backward
        torch.ones(2, requires_grad=True).sum().backward()
accelerator = accel.Accelerator()
model = accelerator.prepare(nn.Linear(8, 8))
accelerator.backward(model(accel.ones(2, 8, device=accelerator.device)).sum())
print(*(parameter.grad.device for parameter in model.parameters()))
