#!/usr/bin/env python3
"""Trains a convolutional network that classifies images, with a cycle of learning rates."""

import torch
from command_line import package, parse, utils
from tasks import ImageClassifier, image_loaders
from training import evaluate, report, train_epoch


def main():
    arguments = parse(__doc__, lr=3e-3)
    accelerator = package.Accelerator(mixed_precision=arguments.mixed_precision)
    utils.set_seed(42)
    train_loader, eval_loader = image_loaders()
    model = ImageClassifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=arguments.lr / 25)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=arguments.lr, epochs=arguments.epochs, steps_per_epoch=len(train_loader))
    model, optimizer, train_loader, eval_loader, scheduler = accelerator.prepare(model, optimizer, train_loader, eval_loader, scheduler)
    for epoch in range(arguments.epochs):
        loss = train_epoch(accelerator, model, optimizer, train_loader, scheduler)
        report(accelerator, f"epoch {epoch}", loss, evaluate(accelerator, model, eval_loader))
    accelerator.end_training()


if __name__ == "__main__":
    main()
