#!/usr/bin/env python3
"""Saves the training after each epoch. A second start with the same folder continues behind the last epoch."""

import pathlib

import torch
from command_line import package, parse, utils
from tasks import SequenceClassifier, sequence_loaders
from training import evaluate, report, train_epoch


class Progress:
    """How many epochs are done; saved with the training."""

    def __init__(self):
        self.epochs = 0

    def state_dict(self):
        return {"epochs": self.epochs}

    def load_state_dict(self, state):
        self.epochs = state["epochs"]


def main():
    arguments = parse(__doc__, folder="example_checkpoints")
    configuration = utils.ProjectConfiguration(project_dir=arguments.folder, automatic_checkpoint_naming=True, total_limit=2)
    accelerator = package.Accelerator(mixed_precision=arguments.mixed_precision, project_config=configuration)
    utils.set_seed(42)
    model = SequenceClassifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
    progress = Progress()
    model, optimizer, train_loader, eval_loader, scheduler = accelerator.prepare(model, optimizer, *sequence_loaders(), scheduler)
    accelerator.register_for_checkpointing(progress)
    if pathlib.Path(arguments.folder, "checkpoints").is_dir():
        accelerator.load_state()
        accelerator.print(f"continues behind {progress.epochs} epochs")
    configuration.iteration = progress.epochs
    while progress.epochs < arguments.epochs:
        loss = train_epoch(accelerator, model, optimizer, train_loader, scheduler)
        report(accelerator, f"epoch {progress.epochs}", loss, evaluate(accelerator, model, eval_loader))
        progress.epochs += 1
        accelerator.save_state()
    accelerator.end_training()


if __name__ == "__main__":
    main()
