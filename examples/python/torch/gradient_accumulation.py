#!/usr/bin/env python3
"""Steps once for several micro-batches: accumulate() decides which backward exchanges gradients, and which step updates."""

import torch
from command_line import package, parse, utils
from tasks import SequenceClassifier, sequence_loaders
from training import evaluate, report, train_epoch


def main():
    arguments = parse(__doc__, gradient_accumulation_steps=3)
    accelerator = package.Accelerator(mixed_precision=arguments.mixed_precision, gradient_accumulation_steps=arguments.gradient_accumulation_steps)
    utils.set_seed(42)
    model = SequenceClassifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, optimizer, train_loader, eval_loader = accelerator.prepare(model, optimizer, *sequence_loaders(batch_size=8))
    for epoch in range(arguments.epochs):
        loss = train_epoch(accelerator, model, optimizer, train_loader)
        report(accelerator, f"epoch {epoch}", loss, evaluate(accelerator, model, eval_loader))
    accelerator.end_training()


if __name__ == "__main__":
    main()
