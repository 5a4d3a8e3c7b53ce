"""Out of memory in the forward, the backward and the update is OutOfMemoryError, and the next smaller batch works.

All memory but a little is taken just before the part that shall fail, and given back after it.
"""

import os

from result import DEVICE, SHORT, figure, require

if DEVICE == "sim":
    os.environ["SIMULATED_DEVICE_MEMORY"] = str(64 << 20)

import accel
from accel import Accelerator, capi, errors, nn, optim
from accel.nn import functional as F

WIDTH = 128 if SHORT else 4096
BATCH = 256 if SHORT else 65536
PARTS = ("forward", "backward", "update")


def fill(device):
    """Takes the memory of the device, in ever smaller blocks."""
    taken, size = [], 1 << (22 if SHORT else 30)
    while size >= 512:
        try:
            taken.append(accel.empty(size, dtype=accel.uint8, device=device))
        except errors.OutOfMemoryError:
            size //= 2
    return taken


def step(accelerator, batch, fill_before=None):
    """One step of a new model; memory is full in one of its parts."""
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
    model, optimizer = accelerator.prepare(model, optim.AdamW(model.parameters(), lr=1e-3))
    rows = accel.ones(batch, WIDTH, device=accelerator.device)
    taken = fill(accelerator.device) if fill_before == "forward" else []
    try:
        loss = F.mse_loss(model(rows), rows)
        taken += fill(accelerator.device) if fill_before == "backward" else []
        accelerator.backward(loss)
        taken += fill(accelerator.device) if fill_before == "update" else []
        optimizer.step()
        return loss.item()
    finally:
        taken.clear()
        accelerator.free_memory()


def main():
    accelerator = Accelerator()
    for part in PARTS:
        tried = []

        @accel.utils.find_executable_batch_size(starting_batch_size=BATCH)
        def train(batch_size):
            tried.append(batch_size)
            try:
                return step(accelerator, batch_size, part if batch_size == BATCH else None)
            except errors.OutOfMemoryError as error:
                require("out of memory" in str(error), f"{part}: the error says: {error}")
                raise

        loss = train()
        require(len(tried) == 2, f"{part}: the batches {tried} were tried; expected that {BATCH} fails and the next one works")
        require(loss == loss and loss > 0, f"{part}: the loss after it is {loss}")
        figure("out_of_memory", part=part, tried=tried, allocated_after=capi.accel_device_memory(accelerator.device)["allocated"])


main()
