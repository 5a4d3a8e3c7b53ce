"""A model whose forward is the program's own: it learns the exclusive or. accel launch --num-processes 2 -- python foreign_module.py"""

import accel
from accel import Accelerator, nn, ops, optim


class ExclusiveOr(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Parameter(accel.tensor([[0.9, -0.7, 0.4, -0.3], [-0.8, 0.6, 0.5, -0.2]]))
        self.hidden_bias = nn.Parameter(accel.tensor([0.1, 0.2, -0.3, 0.4]))
        self.output = nn.Parameter(accel.tensor([0.7, 0.8, -0.5, 0.3]))

    def forward(self, x):
        return ops.sigmoid(ops.tanh(x @ self.hidden + self.hidden_bias) @ self.output)


accelerator = Accelerator(cpu=True)
inputs = accel.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
labels = accel.tensor([0.0, 1.0, 1.0, 0.0])
model = ExclusiveOr()
optimizer = optim.SGD(model.parameters(), lr=2.0)
model, optimizer = accelerator.prepare(model, optimizer)
for step in range(501):
    loss = (model(inputs) - labels).square().mean()
    if step % 100 == 0:
        accelerator.print(f"step {step} loss {loss.item():.4f}")
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
accelerator.print("answers", *(int(answer > 0.5) for answer in model(inputs)))
accelerator.end_training()
