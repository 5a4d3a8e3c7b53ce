#!/usr/bin/env python3
"""Trains without a schedule of learning rates, with the package schedulefree."""

import schedulefree
from command_line import package, parse, utils
from tasks import SequenceClassifier, sequence_loaders
from training import evaluate, report, train_epoch


def main():
    arguments = parse(__doc__)
    accelerator = package.Accelerator(mixed_precision=arguments.mixed_precision)
    utils.set_seed(42)
    model = SequenceClassifier()
    optimizer = schedulefree.AdamWScheduleFree(model.parameters(), lr=3e-3, warmup_steps=4)
    model, optimizer, train_loader, eval_loader = accelerator.prepare(model, optimizer, *sequence_loaders())
    for epoch in range(arguments.epochs):
        optimizer.train()
        loss = train_epoch(accelerator, model, optimizer, train_loader)
        optimizer.eval()
        report(accelerator, f"epoch {epoch}", loss, evaluate(accelerator, model, eval_loader))
    accelerator.end_training()


if __name__ == "__main__":
    main()
