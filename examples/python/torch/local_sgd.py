#!/usr/bin/env python3
"""Each rank trains for itself, and the weights are averaged every few steps."""

import importlib

import torch
from command_line import package, parse, utils
from tasks import SequenceClassifier, sequence_loaders
from torch.nn import functional as F
from training import evaluate, report

LocalSGD = importlib.import_module(f"{package.__name__}.local_sgd").LocalSGD


def main():
    arguments = parse(__doc__, local_sgd_steps=4)
    accelerator = package.Accelerator(mixed_precision=arguments.mixed_precision)
    utils.set_seed(42)
    model = SequenceClassifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, train_loader, eval_loader = accelerator.prepare(model, optimizer, *sequence_loaders())
    for epoch in range(arguments.epochs):
        model.train()
        with LocalSGD(accelerator=accelerator, model=model, local_sgd_steps=arguments.local_sgd_steps, enabled=True) as local_sgd:
            for tokens, classes in train_loader:
                with accelerator.accumulate(model):
                    loss = F.cross_entropy(model(tokens), classes)
                    accelerator.backward(loss)
                    optimizer.step()
                    optimizer.zero_grad()
                    local_sgd.step()
        report(accelerator, f"epoch {epoch}", loss.detach(), evaluate(accelerator, model, eval_loader))
    accelerator.end_training()


if __name__ == "__main__":
    main()
