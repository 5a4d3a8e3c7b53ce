#!/usr/bin/env python3
"""Finds a batch size that fits into memory, and accumulates gradients so that each step sees as many samples as before."""

import torch
from command_line import package, parse, utils
from tasks import SequenceClassifier, sequence_loaders
from training import evaluate, report, train_epoch


def main():
    arguments = parse(__doc__, batch_size=64, fits=16)
    accelerator = package.Accelerator(mixed_precision=arguments.mixed_precision)

    @utils.find_executable_batch_size(starting_batch_size=arguments.batch_size)
    def train(batch_size):
        accelerator.free_memory()
        if batch_size > arguments.fits:  # stands for a device whose memory is used up
            raise RuntimeError("CUDA out of memory.")
        accelerator.gradient_accumulation_steps = max(1, arguments.batch_size // batch_size)
        utils.set_seed(42)
        model = SequenceClassifier()
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        model, optimizer, train_loader, eval_loader = accelerator.prepare(model, optimizer, *sequence_loaders(batch_size))
        for epoch in range(arguments.epochs):
            loss = train_epoch(accelerator, model, optimizer, train_loader)
            report(accelerator, f"batch size {batch_size} x {accelerator.gradient_accumulation_steps} epoch {epoch}", loss,
                   evaluate(accelerator, model, eval_loader))

    train()
    accelerator.end_training()


if __name__ == "__main__":
    main()
