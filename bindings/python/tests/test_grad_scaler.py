# SPDX-License-Identifier: Apache-2.0
"""The loss scale of an Accelerator, as programs of torch read and set it."""

import copy

import pytest

import accel
from accel import Accelerator, GradScalerKwargs, errors, nn, optim


# Regression: `accelerator.scaler` was None while losses were scaled.
def test_the_scaler_is_read_as_that_of_torch():
    assert Accelerator(cpu=True).scaler is None
    accelerator = Accelerator(cpu=True, kwargs_handlers=[GradScalerKwargs(init_scale=1024, growth_interval=2, enabled=True)])
    scaler = accelerator.scaler
    assert scaler.is_enabled() and scaler._enabled is True and scaler._init_scale == scaler.get_scale() == 1024.0
    assert (scaler._growth_factor, scaler._backoff_factor, scaler._growth_interval) == (2.0, 0.5, 2)
    assert (scaler.get_growth_factor(), scaler.get_backoff_factor(), scaler.get_growth_interval()) == (2.0, 0.5, 2)
    model = nn.Linear(3, 2)
    model, optimizer = accelerator.prepare(model, optim.SGD(model.parameters(), lr=0.1))
    scales = []
    for factor in (1.0, 1.0, float("inf"), 1.0):
        accelerator.backward(model(accel.ones(1, 3)).sum() * factor)
        scaler.unscale_(optimizer)
        optimizer.step()
        optimizer.zero_grad()
        scales.append((scaler.get_scale(), scaler._get_growth_tracker()))
    assert scales == [(1024.0, 1), (2048.0, 0), (1024.0, 0), (1024.0, 1)] and scaler.get_scale() == accelerator.loss_scale
    saved = scaler.state_dict()
    assert saved == {"scale": 1024.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2, "_growth_tracker": 1}
    scaler.set_growth_factor(4)
    scaler.set_backoff_factor(0.25)
    scaler.set_growth_interval(7)
    assert accelerator.scaler.state_dict() == {**saved, "growth_factor": 4.0, "backoff_factor": 0.25, "growth_interval": 7}
    scaler.load_state_dict({**saved, "scale": 16.0})
    assert accelerator.loss_scale == accelerator.scaler._init_scale == 16.0
    with pytest.raises(errors.ArgumentError, match="growth_factor"):
        scaler.set_growth_factor(0.5)
    with pytest.raises(errors.ArgumentError, match='lacks the number "scale"'):
        scaler.load_state_dict({})
    for name, advice in (("scale", "accelerator.backward"), ("step", "step.. of the prepared"), ("update", "changes the scale")):
        with pytest.raises(NotImplementedError, match=advice):
            getattr(scaler, name)
    with pytest.raises(TypeError, match="state_dict"):
        copy.copy(scaler)
    accelerator.free_memory()
