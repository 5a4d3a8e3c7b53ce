"""Learns whether the numbers of a row have a positive sum; written for libaccel."""

import argparse
import os

import accel
from accel import Accelerator, DataLoader, Dataset, nn
from accel.lr_scheduler import LambdaLR
from accel.nn import functional as F
from accel.optim import AdamW
from accel.utils import ProjectConfiguration, set_seed


class Rows(Dataset):
    def __init__(self, count):
        self.rows = accel.randn(count, 16)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"row": self.rows[index], "label": int(self.rows[index].sum() > 0)}


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(16, 32)
        self.output = nn.Linear(32, 2)

    def forward(self, row):
        return self.output(F.relu(self.hidden(row)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--project-dir", default="port")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--mixed-precision", choices=["no", "fp16", "bf16"])
    arguments = parser.parse_args()

    project = ProjectConfiguration(arguments.project_dir, automatic_checkpoint_naming=True)
    accelerator = Accelerator(cpu=True, mixed_precision=arguments.mixed_precision, gradient_accumulation_steps=2, project_config=project)
    set_seed(42)
    model = Classifier()
    optimizer = AdamW(params=model.parameters(), lr=0.01)
    scheduler = LambdaLR(optimizer, lambda step: 1 / (1 + 0.01 * step))
    train_loader = DataLoader(Rows(200), batch_size=8, shuffle=True)
    eval_loader = DataLoader(Rows(50), batch_size=8)
    model, optimizer, train_loader, eval_loader, scheduler = accelerator.prepare(model, optimizer, train_loader, eval_loader, scheduler)

    for epoch in range(arguments.epochs):
        model.train()
        for batch in train_loader:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(batch["row"]), batch["label"])
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()

        model.eval()
        right = total = 0
        for batch in eval_loader:
            with accel.no_grad():
                answers = model(batch["row"]).argmax(dim=-1)
            answers, labels = accelerator.gather_for_metrics((answers, batch["label"]))
            right += (answers == labels).sum().item()
            total += len(labels)
        accelerator.print(f"epoch {epoch}: {right} of {total} right")
        accelerator.save_state()

    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        print(sorted(os.listdir(os.path.join(arguments.project_dir, "checkpoints"))))
    weights = accelerator.unwrap_model(model).state_dict()
    accelerator.print({name: tuple(tensor.shape) for name, tensor in weights.items()})
    accelerator.end_training()


if __name__ == "__main__":
    main()
