"""A model of this program whose layers are split over the processes: each has half of the hidden units, and all work on the same batches:

    accel launch --num-processes 2 --parallelism-config-tp-size 2 -- python split_model.py
"""

import accel
from accel import Accelerator, DataLoader, nn, optim
from accel.nn import functional as F
from digits import DIGITS, SEGMENTS, make_digits

HIDDEN = 32


def weights(random, *shape):
    """Small numbers, the same in every language."""
    numbers = []
    for _ in range(shape[0] * shape[1]):
        random = (random * 1664525 + 1013904223) % 2**32
        numbers.append((random >> 24) / 512 - 0.25)
    return accel.tensor(numbers).reshape(*shape)


class FeedForward(nn.Module):
    def __init__(self, group):
        super().__init__()
        self.group = group  # the processes that share the layers
        self.up = nn.Parameter(weights(3, HIDDEN, SEGMENTS))
        self.down = nn.Parameter(weights(4, len(DIGITS), HIDDEN))
        self.bias = nn.Parameter(accel.zeros(len(DIGITS)))

    def forward(self, x):
        hidden = F.relu(F.linear(accel.parallel_copy(x, self.group), self.up))  # the units of this process
        return accel.parallel_reduce(F.linear(hidden, self.down), self.group) + self.bias


accelerator = Accelerator(cpu=True)
accel.set_seed(0)
network = FeedForward(accel.Mesh().get_group("tp"))
model = accelerator.prepare_model(network, tensor_parallel={"plan": "up colwise; down rowwise"})
optimizer, loader = accelerator.prepare(optim.AdamW(network.parameters(), lr=0.01), DataLoader(make_digits(1, 320), batch_size=16, shuffle=True, seed=0))

accelerator.print(f"processes: {accelerator.num_processes}")
accelerator.print(f"up here: {' x '.join(map(str, network.up.shape))}")
for epoch in range(1, 4):
    total = 0
    for features, labels in loader:
        loss = F.cross_entropy(model(features), labels)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        total += loss.item()
    accelerator.print(f"epoch {epoch} loss: {total / len(loader):.4f}")
saved = accelerator.get_state_dict(model)  # whole, on the main process
if accelerator.is_main_process:
    print(f"up saved: {' x '.join(map(str, saved['up'].shape))}")
accelerator.end_training()
