# SPDX-License-Identifier: Apache-2.0
"""Captured steps on a simulated accelerator, of the package's own models and of torch's: the bits of steps without a capture. Run by
test_captured_steps.py in a process with ACCEL_DEVICE_PLUGINS."""

import sys

import accel
from accel import nn

DEVICE = "sim:0"
STEPS = 12


def own_training():
    accel.set_seed(3)
    accelerator = accel.Accelerator(torch_device=DEVICE)
    model, optimizer = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), None
    optimizer = accel.optim.AdamW(model.parameters(), lr=0.01)
    return accelerator, *accelerator.prepare(model, optimizer)


def torch_training(**settings):
    import torch

    torch.manual_seed(3)
    accelerator = accel.Accelerator(torch_device=DEVICE)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    return accelerator, *accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01, **settings))


def step_of(accelerator, model, optimizer):
    def step(batch):
        optimizer.zero_grad()
        loss = (model(batch) ** 2).mean()
        accelerator.backward(loss)
        optimizer.step()
        return loss

    return step


def own_batch(number):
    accel.set_seed(100 + number)
    return accel.randn(6, 4)


def torch_batch(number):
    import torch

    return torch.randn(6, 4, generator=torch.Generator().manual_seed(number)).to(DEVICE)


def check(new_training, batch):
    plain, training = new_training(), new_training()
    plain_step, captured = step_of(*plain), training[0].capture(step_of(*training))
    for number in range(STEPS):
        if number == 8:  # a rate that changes
            for one in (plain, training):
                one[2].param_groups[0]["lr"] = 2 ** -8  # the same in float32, as devices have it
        expected, found = plain_step(batch(number).to(DEVICE)).item(), captured(batch(number)).item()
        assert expected == found, (number, expected, found)
    return captured.counts


counts = check(own_training, own_batch)
assert counts == (STEPS, 2, STEPS - 3), counts
if "--torch" in sys.argv:
    import simulated_torch

    simulated_torch.register()
    counts = check(lambda: torch_training(fused=True), torch_batch)
    assert counts.replays == counts.steps - 1 and counts.captures == 1, counts
    counted = torch_training(foreach=True)
    captured = counted[0].capture(step_of(*counted), warmup_steps=1)
    captured(torch_batch(0))
    try:
        captured(torch_batch(1))
    except accel.errors.Error as error:
        assert "counts its steps on the host" in str(error) or "cannot capture the operator" in str(error), error
    else:
        raise AssertionError("an update that the host counts was captured")
print("equal")
