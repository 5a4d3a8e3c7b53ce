#!/usr/bin/env python3
"""Trains a model on each part of the data but one, and joins what the models answer on the part that each has not seen."""

import torch
from command_line import package, parse, utils
from tasks import SequenceClassifier, sequences
from torch.utils.data import DataLoader, Subset
from training import evaluate, report, train_epoch


def main():
    arguments = parse(__doc__, folds=3, epochs=1)
    accelerator = package.Accelerator(mixed_precision=arguments.mixed_precision)
    samples = sequences(240, seed=1)
    order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(3))
    correct = 0
    for fold in range(arguments.folds):
        seen = order[torch.arange(len(order)) % arguments.folds != fold]
        others = order[torch.arange(len(order)) % arguments.folds == fold]
        utils.set_seed(42)
        model = SequenceClassifier()
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        loaders = [DataLoader(Subset(samples, rows.tolist()), batch_size=16, shuffle=rows is seen) for rows in (seen, others)]
        model, optimizer, train_loader, eval_loader = accelerator.prepare(model, optimizer, *loaders)
        for _ in range(arguments.epochs):
            loss = train_epoch(accelerator, model, optimizer, train_loader)
        accuracy = evaluate(accelerator, model, eval_loader)
        report(accelerator, f"fold {fold}", loss, accuracy)
        correct += accuracy * len(others)
        accelerator.free_memory()
    accelerator.print(f"all folds: accuracy {correct / len(order):.4f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
