#!/usr/bin/env python3
"""Trains a transformer that classifies sequences. On two ranks: accel launch --num_processes 2 nlp_example.py --mixed_precision bf16"""

import torch
from command_line import package, parse, utils
from tasks import SequenceClassifier, sequence_loaders
from torch.nn import functional as F


def main():
    arguments = parse(__doc__, lr=3e-3)
    accelerator = package.Accelerator(mixed_precision=arguments.mixed_precision)
    utils.set_seed(42)
    train_loader, eval_loader = sequence_loaders()
    model = SequenceClassifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr)
    steps = arguments.epochs * len(train_loader)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 8) * max(0, 1 - step / steps))
    model, optimizer, train_loader, eval_loader, scheduler = accelerator.prepare(model, optimizer, train_loader, eval_loader, scheduler)

    for epoch in range(arguments.epochs):
        model.train()
        for tokens, classes in train_loader:
            loss = F.cross_entropy(model(tokens), classes)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        model.eval()
        correct = total = 0
        for tokens, classes in eval_loader:
            with torch.no_grad():
                answers = model(tokens).argmax(-1)
            answers, classes = accelerator.gather_for_metrics((answers, classes))
            correct, total = correct + (answers == classes).sum().item(), total + len(classes)
        mean = accelerator.reduce(loss.detach(), "mean").item()
        accelerator.print(f"epoch {epoch}: loss {mean:.6f} accuracy {correct / total:.4f} of {total}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
