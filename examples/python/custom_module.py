"""A module whose forward is a function of this program. LibTorch's autograd goes through it, and data parallelism, optimizers and
checkpoints take it as any other:

    accel launch --num-processes 2 -- python custom_module.py
"""

import accel
from accel import Accelerator, nn, optim
from accel.nn import functional as F


class Affine(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(accel.zeros(1))
        self.bias = nn.Parameter(accel.zeros(1))
        self.calls = 0

    def forward(self, *inputs):
        if len(inputs) != 1:
            raise TypeError(f"Affine takes 1 input, got {len(inputs)}")
        self.calls += 1
        return inputs[0] * self.weight + self.bias


accelerator = Accelerator(cpu=True)
accel.set_seed(0)
affine = Affine()
model, optimizer = accelerator.prepare(affine, optim.SGD(affine.parameters(), lr=0.5))
x = accel.tensor([-1 + i / 8 for i in range(accelerator.process_index, 16, accelerator.num_processes)]).to(accelerator.device)
y = 3 * x - 1

accelerator.print(f"kind: {type(affine).__name__}")
for step in range(1, 101):
    loss = F.mse_loss(model(x), y)
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    if step in (1, 100):
        accelerator.print(f"step {step} loss: {accelerator.reduce(loss.detach(), 'mean').item():.4f}")
accelerator.print(f"weight: {affine.weight.item():.4f}")
accelerator.print(f"bias: {affine.bias.item():.4f}")
accelerator.print(f"forward calls: {affine.calls}")

try:  # what goes wrong inside of forward comes out of the call around it
    model(x, x)
except TypeError as error:
    accelerator.print(f"error: {error}")
accelerator.end_training()
