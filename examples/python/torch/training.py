"""An epoch of training and an evaluation, for the examples that show something else."""

import torch
from torch.nn import functional as F


def train_epoch(accelerator, model, optimizer, loader, scheduler=None):
    """The mean loss of this rank's batches."""
    model.train()
    losses = []
    for inputs, classes in loader:
        with accelerator.accumulate(model):
            loss = F.cross_entropy(model(inputs), classes)
            accelerator.backward(loss)
            optimizer.step()
            if scheduler is not None:
                scheduler.step()
            optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses).mean()


def evaluate(accelerator, model, loader):
    """The part of all samples that the model classifies correctly."""
    model.eval()
    correct = total = 0
    for inputs, classes in loader:
        with torch.no_grad():
            answers = model(inputs).argmax(-1)
        answers, classes = accelerator.gather_for_metrics((answers, classes))
        correct, total = correct + (answers == classes).sum().item(), total + len(classes)
    return correct / total


def report(accelerator, name, loss, accuracy):
    """A line on the first rank: the loss of all ranks."""
    accelerator.print(f"{name}: loss {accelerator.reduce(loss, 'mean').item():.6f} accuracy {accuracy:.4f}")
