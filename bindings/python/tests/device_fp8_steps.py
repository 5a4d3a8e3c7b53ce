# SPDX-License-Identifier: Apache-2.0
"""Training under fp8 on a simulated accelerator: captured steps have the bits of ordinary ones, and the losses of the CPU. Run by test_fp8.py in a
process with ACCEL_DEVICE_PLUGINS."""

import accel
from accel import nn
from accel.utils import AORecipeKwargs, TERecipeKwargs

STEPS = 10


def training(device, recipe):
    accel.PartialState._reset_state()
    accel.set_seed(3)
    accelerator = accel.Accelerator(torch_device=device, mixed_precision="fp8", kwargs_handlers=[recipe])
    model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 16))
    model, optimizer = accelerator.prepare(model, accel.optim.AdamW(model.parameters(), lr=0.01))
    assert "2" in accelerator.describe_fp8(model)["layers"]

    def step(batch):
        optimizer.zero_grad()
        loss = (model(batch) ** 2).mean()
        accelerator.backward(loss)
        optimizer.step()
        return loss

    return accelerator, step


def batch(number):
    accel.set_seed(100 + number)
    return accel.randn(6, 16)


for recipe in (AORecipeKwargs(), TERecipeKwargs()):
    on_cpu = training("cpu", recipe)[1]
    expected = [on_cpu(batch(number)).item() for number in range(STEPS)]
    plain, (accelerator, step) = training("sim:0", recipe)[1], training("sim:0", recipe)
    captured = accelerator.capture(step)
    for number in range(STEPS):
        found, recorded = plain(batch(number).to("sim:0")).item(), captured(batch(number)).item()
        assert found == recorded, (number, found, recorded)
        assert abs(found - expected[number]) < 0.1 * expected[0], (number, found, expected[number])
    assert captured.counts.captures == 1 and captured.counts.replays > 0, captured.counts
print("equal")
