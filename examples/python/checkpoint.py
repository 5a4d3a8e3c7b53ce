"""A run that is saved, thrown away and resumed continues as if nothing had happened, bit for bit:

    accel launch --num-processes 2 -- python checkpoint.py FOLDER
"""

import sys

import accel
from accel import Accelerator, DataLoader, nn, optim
from accel.nn import functional as F
from digits import DIGITS, SEGMENTS, make_digits


class Run:
    """Everything that trains, prepared."""

    def __init__(self, accelerator, seed):
        accel.set_seed(seed)
        model = nn.Sequential(nn.Linear(SEGMENTS, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, len(DIGITS)))
        optimizer = optim.AdamW(model.parameters(), lr=0.01)
        scheduler = optim.lr_scheduler.get_cosine_schedule_with_warmup(optimizer, 2, 12)
        loader = DataLoader(make_digits(1, 96), batch_size=8, shuffle=True, seed=0)
        self.accelerator = accelerator
        self.model, self.optimizer, self.scheduler, self.loader = accelerator.prepare(model, optimizer, scheduler, loader)

    def steps(self):
        """Trains for as long as it is asked to. Each step gives the mean of the processes' losses."""
        while True:
            for features, labels in self.loader:
                with self.accelerator.accumulate(self.model):
                    loss = F.cross_entropy(self.model(features), labels)
                    self.accelerator.backward(loss)
                    self.optimizer.step()
                    self.scheduler.step()
                    self.optimizer.zero_grad()
                yield self.accelerator.reduce(loss.detach(), "mean").item()


if len(sys.argv) != 2:
    sys.exit(f"usage: {sys.argv[0]} FOLDER")
accelerator = Accelerator(cpu=True)
losses = []
for step, loss in zip(range(1, 7), Run(accelerator, seed=0).steps()):
    accelerator.print(f"step {step} loss: {loss:.4f}")
    losses.append(loss)
    if step == 3:
        accelerator.save_state(sys.argv[1])
accelerator.free_memory()
accelerator.print("saved after step: 3")

run = Run(accelerator, seed=1)  # other weights, which are replaced
accelerator.load_state(sys.argv[1])
resumed = []
for step, loss in zip(range(4, 7), run.steps()):
    accelerator.print(f"resumed step {step} loss: {loss:.4f}")
    resumed.append(loss)
accelerator.print(f"equal: {'true' if resumed == losses[3:] else 'false'}")
accelerator.end_training()
