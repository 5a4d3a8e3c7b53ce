#!/usr/bin/env python3
"""Trains with the largest batch size that fits into memory."""

import torch
from command_line import package, parse, utils
from tasks import SequenceClassifier, sequence_loaders
from training import evaluate, report, train_epoch


def main():
    arguments = parse(__doc__, batch_size=64, fits=32)
    accelerator = package.Accelerator(mixed_precision=arguments.mixed_precision)

    @utils.find_executable_batch_size(starting_batch_size=arguments.batch_size)
    def train(batch_size):
        accelerator.free_memory()
        if batch_size > arguments.fits:  # stands for a device whose memory is used up
            raise RuntimeError("CUDA out of memory.")
        utils.set_seed(42)
        model = SequenceClassifier()
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        model, optimizer, train_loader, eval_loader = accelerator.prepare(model, optimizer, *sequence_loaders(batch_size))
        for epoch in range(arguments.epochs):
            loss = train_epoch(accelerator, model, optimizer, train_loader)
            report(accelerator, f"batch size {batch_size} epoch {epoch}", loss, evaluate(accelerator, model, eval_loader))

    train()
    accelerator.end_training()


if __name__ == "__main__":
    main()
