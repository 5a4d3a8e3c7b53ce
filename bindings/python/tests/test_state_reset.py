# SPDX-License-Identifier: Apache-2.0
"""What `_reset_state()` of the state classes forgets, and what it leaves as it is."""

import accel
from accel import Accelerator, nn


def test_processes_stay_what_they_are_after_a_reset():
    accelerator = Accelerator(cpu=True)
    accel.AcceleratorState._reset_state()
    assert accelerator.is_main_process and accelerator.is_local_main_process and accelerator.is_last_process


# Regression: an Accelerator after `AcceleratorState._reset_state()` kept the accumulation and the prepared objects of the
# Accelerator before it.
def test_an_accelerator_after_a_reset_begins_anew(tmp_path):
    first = Accelerator(cpu=True, gradient_accumulation_steps=3)
    first.prepare(nn.Linear(2, 2))
    accel.AcceleratorState._reset_state()
    second = Accelerator(cpu=True)
    assert second.gradient_accumulation_steps == 1
    second.prepare(nn.Linear(3, 1))
    second.save_state(tmp_path / "second")
    assert len(list((tmp_path / "second").glob("model*"))) == 1  # that of the first is not there


def test_a_reset_leaves_the_job_as_it_is(monkeypatch):
    first = Accelerator(cpu=True, mixed_precision="no", gradient_accumulation_steps=3)
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "fp16")  # which a CPU refuses, and nobody asks for here
    accel.AcceleratorState._reset_state()
    second = Accelerator(cpu=True, mixed_precision="no", gradient_accumulation_steps=2)
    assert second.gradient_accumulation_steps == 2
    assert first.gather(accel.ones(1)).tolist() == second.gather(accel.ones(1)).tolist() == [1]


# Regression: `GradientState._reset_state()` changed nothing.
def test_a_reset_of_the_gradient_state_forgets_the_settings():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=3)
    accel.GradientState._reset_state()
    assert accel.GradientState().num_steps == accelerator.gradient_accumulation_steps == 1
