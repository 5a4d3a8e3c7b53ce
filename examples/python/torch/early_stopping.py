#!/usr/bin/env python3
"""Stops all ranks when one of them has seen a loss that is low enough: a flag that any rank raises is seen by all."""

import torch
from command_line import package, parse, utils
from tasks import SequenceClassifier, sequence_loaders
from training import evaluate, report, train_epoch


def main():
    arguments = parse(__doc__, target=0.5, epochs=20)
    accelerator = package.Accelerator(mixed_precision=arguments.mixed_precision)
    utils.set_seed(42)
    model = SequenceClassifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model, optimizer, train_loader, eval_loader = accelerator.prepare(model, optimizer, *sequence_loaders())
    for epoch in range(arguments.epochs):
        loss = train_epoch(accelerator, model, optimizer, train_loader)
        if loss.item() < arguments.target:
            accelerator.set_trigger()
        report(accelerator, f"epoch {epoch}", loss, evaluate(accelerator, model, eval_loader))
        if accelerator.check_trigger():
            accelerator.print(f"stops after epoch {epoch}")
            break
    accelerator.end_training()


if __name__ == "__main__":
    main()
