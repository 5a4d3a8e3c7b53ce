"""A model in stages: each process has some of its layers, and the rows of a batch pass from one to the next.

    accel launch --num-processes 2 --parallelism-config-pp-size 2 -- python pipeline.py
"""

import accel
from accel import Accelerator, DataLoader, nn, optim
from digits import SEGMENTS, make_digits

accelerator = Accelerator(cpu=True)
accel.set_seed(0)
network = nn.Sequential(nn.Linear(SEGMENTS, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10))
model = accelerator.prepare_model(network, pipeline={"micro_batches": 4, "split": "parameters"})
optimizer, loader = accelerator.prepare(optim.AdamW(model.parameters(), lr=0.01), DataLoader(make_digits(1, 320), batch_size=16, shuffle=True, seed=0))

accelerator.print(f"processes: {accelerator.num_processes}")
accelerator.print(f"parameters here: {sum(parameter.numel() for parameter in model.parameters())}")
for epoch in range(1, 4):
    total = 0
    for features, labels in loader:
        total += accelerator.pipeline_step(model, features, labels)  # forwards and backwards of the micro-batches
        optimizer.step()
        optimizer.zero_grad()
    accelerator.print(f"epoch {epoch} loss: {total / len(loader):.4f}")
accelerator.end_training()
