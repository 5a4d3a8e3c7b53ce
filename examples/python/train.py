"""Learns which byte follows which in a text, data-parallel: accel launch --num-processes 2 -- python train.py TEXT

The ranks share each batch, so the printed lines do not depend on their number.
"""

import sys

import accel
from accel import Accelerator, DataLoader, TextDataset, nn, optim
from accel.nn import functional as F

accelerator = Accelerator(cpu=True, split_batches=True)
accel.set_seed(0)
model = nn.Sequential(nn.Embedding(256, 32), nn.Linear(32, 256))
optimizer = optim.AdamW(model.parameters(), lr=0.02)
dataset = TextDataset(sys.argv[1], sequence_length=32)
loader = DataLoader(dataset, batch_size=16, shuffle=True, drop_last=True, seed=0)
scheduler = optim.lr_scheduler.get_linear_schedule_with_warmup(optimizer, 5, len(loader))
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
accelerator.print(f"{model.num_parameters()} parameters, {len(dataset)} windows, {len(loader)} steps")
for step, (bytes_before, bytes_after) in enumerate(loader, 1):
    loss = F.cross_entropy(model(bytes_before), bytes_after)
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    if step % 10 == 0:
        accelerator.print(f"step {step} loss {accelerator.reduce(loss.detach(), 'mean').item():.3f}")
accelerator.end_training()
