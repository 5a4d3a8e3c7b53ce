#!/usr/bin/env python3
"""Counts each sample of an evaluation once, although loaders repeat samples so that all ranks have as many batches."""

import torch
from command_line import package, parse, utils
from tasks import ImageClassifier, image_loaders
from training import report, train_epoch


def main():
    arguments = parse(__doc__)
    accelerator = package.Accelerator(mixed_precision=arguments.mixed_precision)
    utils.set_seed(42)
    model = ImageClassifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    model, optimizer, train_loader, eval_loader = accelerator.prepare(model, optimizer, *image_loaders())
    for epoch in range(arguments.epochs):
        loss = train_epoch(accelerator, model, optimizer, train_loader)
        model.eval()
        gathered, metrics = [], []
        for pixels, classes in eval_loader:
            with torch.no_grad():
                answers = model(pixels).argmax(-1)
            gathered.append(len(accelerator.gather(classes)))
            metrics.append(torch.stack(accelerator.gather_for_metrics((answers, classes))))
        answers, classes = torch.cat(metrics, dim=1)
        accelerator.print(f"{sum(gathered)} samples were gathered, {len(classes)} of them count")
        report(accelerator, f"epoch {epoch}", loss, (answers == classes).float().mean().item())
    accelerator.end_training()


if __name__ == "__main__":
    main()
