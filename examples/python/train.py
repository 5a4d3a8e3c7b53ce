"""Trains a small network on the digits of a clock, on as many processes as the launcher starts:

    accel launch --num-processes 2 -- python train.py
"""

import accel
from accel import Accelerator, DataLoader, nn, optim
from accel.nn import functional as F
from digits import DIGITS, SEGMENTS, make_digits


def train_epoch(accelerator, model, optimizer, loader):
    """One pass over the data. Returns the mean of the loss, over the processes too."""
    total = 0
    for features, labels in loader:
        with accelerator.accumulate(model):
            loss = F.cross_entropy(model(features), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            total += loss.item()
    return accelerator.reduce(accel.tensor(total / len(loader), dtype="float64"), "mean").item()


def evaluate(accelerator, model, loader):
    """Counts the test samples, each of which comes to one process, and those that are recognised."""
    samples = correct = 0
    model.eval()
    with accel.no_grad():
        for features, labels in loader:
            predictions = model(features).argmax(1)
            predictions, labels = accelerator.gather_for_metrics((predictions, labels))  # without what fills the last batch
            samples += len(labels)
            correct += (predictions == labels).sum().item()
    return samples, correct


accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
accel.set_seed(0)
model = nn.Sequential(nn.Linear(SEGMENTS, 32), nn.ReLU(), nn.Linear(32, len(DIGITS)))
optimizer = optim.AdamW(model.parameters(), lr=0.01)
training = DataLoader(make_digits(1, 1000), batch_size=16, shuffle=True, seed=0)
test = DataLoader(make_digits(2, 203), batch_size=16)
model, optimizer, training, test = accelerator.prepare(model, optimizer, training, test)

accelerator.print(f"processes: {accelerator.num_processes}")
accelerator.print(f"parameters: {model.num_parameters()}")
for epoch in range(1, 4):
    accelerator.print(f"epoch {epoch} loss: {train_epoch(accelerator, model, optimizer, training):.4f}")
samples, correct = evaluate(accelerator, model, test)
accelerator.print(f"test samples: {samples}")
accelerator.print(f"accuracy: {correct / samples:.4f}")
accelerator.end_training()
