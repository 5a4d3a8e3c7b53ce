"""Trains six steps and writes a checkpoint after three; then begins anew from it, and takes the same steps bit for bit.
accel launch --num-processes 2 -- python checkpoint.py FOLDER"""

import sys

import accel
from accel import Accelerator, DataLoader, TensorDataset, nn, optim
from accel.nn import functional as F

accelerator = Accelerator(cpu=True, split_batches=True)


def begin(seed):
    """A model, an optimizer and a loader, with weights that depend on the seed."""
    accel.set_seed(0)
    rows = accel.randn(48, 8)
    labels = (rows.sum(1) > 0).long()
    accel.set_seed(seed)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
    loader = DataLoader(TensorDataset(rows, labels), batch_size=8, shuffle=True, seed=0)
    return accelerator.prepare(model, optim.AdamW(model.parameters(), lr=0.05), loader)


def train(name, model, optimizer, loader, save_after=None, first=1):
    losses = []
    for step, (rows, labels) in enumerate(loader, first):
        loss = F.cross_entropy(model(rows), labels)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(accelerator.reduce(loss.detach(), "mean").item())
        accelerator.print(f"{name} step {step} loss {losses[-1]:.4f}")
        if step == save_after:
            accelerator.save_state(sys.argv[1])
    return losses


losses = train("first", *begin(seed=1), save_after=3)
accelerator.free_memory()
things = begin(seed=2)
accelerator.load_state(sys.argv[1])
resumed = train("resumed", *things, first=4)
accelerator.print("the same bit for bit" if resumed == losses[3:] else "different")
accelerator.end_training()
