"""A step that the device records after three ordinary ones, and then does by one call; on the CPU each is an ordinary one: python
captured_step.py"""

import accel
from accel import nn

ROWS, FEATURES, STEPS = 32, 8, 20

accelerator = accel.Accelerator()
accel.set_seed(0)
model = nn.Linear(FEATURES, 1)
model, optimizer = accelerator.prepare(model, accel.optim.AdamW(model.parameters(), lr=0.05))


@accelerator.capture
def step(inputs, targets):
    optimizer.zero_grad()
    loss = ((model(inputs) - targets) ** 2).mean()
    accelerator.backward(loss)
    optimizer.step()
    return loss


for number in range(STEPS):
    inputs = accel.randn(ROWS, FEATURES)
    loss = step(inputs, inputs.sum(1, keepdim=True))
    if (number + 1) % 10 == 0:
        print(f"step {number + 1}: loss {loss.item():.4f}")
print("steps that a recording did:", step.counts.replays)
