# SPDX-License-Identifier: Apache-2.0
"""Captured steps: on the CPU they are ordinary ones; on a simulated device they are recorded."""

import pytest

import accel
import simulated_torch
from accel import nn


def new_step(accelerator):
    model = nn.Linear(3, 1)
    model, optimizer = accelerator.prepare(model, accel.optim.SGD(model.parameters(), lr=0.1))

    def step(batch, scale=1.0):
        """One step."""
        optimizer.zero_grad()
        loss = (model(batch) ** 2).mean() * scale
        accelerator.backward(loss)
        optimizer.step()
        return {"loss": loss, "scale": scale}

    return model, step


def test_on_the_cpu_they_are_ordinary_ones(accelerator):
    model, step = new_step(accelerator)
    captured = accelerator.capture(step, warmup_steps=1)
    assert captured.__name__ == "step" and captured.__doc__ == "One step."
    losses = [captured(accel.ones(4, 3), 2.0) for _ in range(4)]
    assert losses[3]["loss"].item() < losses[0]["loss"].item() and losses[0]["scale"] == 2.0
    assert not losses[0]["loss"].requires_grad
    assert captured.counts == (4, 0, 0)


def test_in_fp8_they_are_ordinary_ones_on_the_cpu():
    accelerator = accel.Accelerator(cpu=True, mixed_precision="fp8")
    model = nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 32), nn.Linear(32, 16))
    model, optimizer = accelerator.prepare(model, accel.optim.SGD(model.parameters(), lr=0.1))
    assert accelerator.describe_fp8(model)["layers"] == ["1"]

    def step(batch):
        optimizer.zero_grad()
        loss = (model(batch) ** 2).mean()
        accelerator.backward(loss)
        optimizer.step()
        return loss

    captured = accelerator.capture(step, warmup_steps=1)
    losses = [captured(accel.ones(4, 16)).item() for _ in range(4)]
    assert losses[3] < losses[0] and captured.counts == (4, 0, 0)


def test_wrong_arguments(accelerator):
    _, step = new_step(accelerator)
    with pytest.raises(TypeError, match="the step is a int; expected a function"):
        accelerator.capture(3)
    with pytest.raises(accel.errors.ArgumentError, match="warmup_steps"):
        accelerator.capture(step, warmup_steps=0)
    with pytest.raises(TypeError, match="the inputs of the step have a object"):
        accelerator.capture(step)(object())
    captured = accelerator.capture(lambda batch: object())
    with pytest.raises(TypeError, match="the results of the step have a object"):
        captured(accel.ones(2, 3))


@simulated_torch.needs_device
def test_a_device_records_them():
    assert simulated_torch.run("device_captured_steps.py") == "equal\n"
