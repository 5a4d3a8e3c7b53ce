# SPDX-License-Identifier: Apache-2.0
"""DDP or FSDP: two ranks on one card have the losses and weights of one: parallel.py ddp|fsdp, or as a rank: parallel.py KIND FILE"""

import json
import os
import pathlib
import subprocess
import sys

from result import SHORT, figure, require

STEPS, ROWS, WIDTH = (4, 8, 32) if SHORT else (10, 32, 512)
TOLERANCE = 1e-4  # sums over ranks have another order than sums over rows


def rank(kind, file):
    import time

    import accel
    from accel import Accelerator, FullyShardedDataParallelPlugin, nn, optim
    from accel.nn import functional as F

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, rows):
            return rows + self.down(F.gelu(self.up(rows)))

    plugin = FullyShardedDataParallelPlugin(auto_wrap_policy="TRANSFORMER_BASED_WRAP", transformer_cls_names_to_wrap=["Block"]) if kind == "fsdp" else None
    accelerator = Accelerator(fsdp_plugin=plugin)
    accel.set_seed(0)
    model = nn.Sequential(*[Block() for _ in range(3)], nn.Linear(WIDTH, 10))
    model = accelerator.prepare(model)
    optimizer = accelerator.prepare(optim.AdamW(model.parameters(), lr=1e-3))
    share = ROWS // accelerator.num_processes
    mine = slice(accelerator.process_index * share, (accelerator.process_index + 1) * share)
    losses, began = [], time.perf_counter()
    for step in range(STEPS):
        rows = (accel.arange(ROWS * WIDTH).to(accel.float32) * (1.7 + step)).sin().reshape(ROWS, WIDTH)
        labels = rows[:, :10].argmax(1)
        loss = F.cross_entropy(model(rows[mine].to(accelerator.device)), labels[mine].to(accelerator.device))
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(accelerator.reduce(loss.detach(), "mean").item())
    if accelerator.is_main_process:
        record = {"ranks": accelerator.num_processes, "device": str(accelerator.device), "losses": losses,
                  "step_ms": (time.perf_counter() - began) / STEPS * 1e3, "state": accelerator.describe()}
        pathlib.Path(file).write_text(json.dumps(record))
    accelerator.end_training()


def launch(kind, ranks):
    file = pathlib.Path(f"{ranks}.json").resolve()
    command = [os.environ["ACCEL_PROGRAM"], "launch", "--num-processes", str(ranks), "--", sys.executable, __file__, kind, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(done.stdout + done.stderr)
    require(done.returncode == 0, f"{ranks} ranks: status {done.returncode}: {done.stderr.strip()[-300:]}")
    return json.loads(file.read_text())


def main():
    kind = sys.argv[1]
    one, two = launch(kind, 1), launch(kind, 2)
    require((one["ranks"], two["ranks"]) == (1, 2), f"{one['ranks']} and {two['ranks']} ranks ran; expected 1 and 2")
    print(two["state"])
    require(one["losses"][-1] < one["losses"][0], f"the losses do not fall: {one['losses']}")
    for step, (mine, other) in enumerate(zip(one["losses"], two["losses"])):
        require(abs(mine - other) <= TOLERANCE * max(1, abs(mine)), f"step {step}: the loss of one rank is {mine}, of two {other}")
    figure(kind, device=two["device"], loss=two["losses"][-1], one_rank_ms=one["step_ms"], two_ranks_ms=two["step_ms"])


rank(*sys.argv[1:]) if len(sys.argv) > 2 else main()
