# SPDX-License-Identifier: Apache-2.0
"""Programs of torch on a simulated accelerator, each in a process of its own."""

import pathlib

import pytest

pytest.importorskip("torch", reason="there is no torch")

import simulated_torch  # noqa: E402

pytestmark = simulated_torch.needs_device


@pytest.mark.parametrize("program", ["torch_device_batches.py", "torch_device_dispatch.py", "torch_device_optimizers.py", "torch_offload.py"])
def test_it_computes_what_the_cpu_computes(program):
    assert simulated_torch.run(program) == "equal\n"


def test_captured_steps():
    assert simulated_torch.run("device_captured_steps.py", "--torch") == "equal\n"


# Regression: after a backward before `import torch` no device had a thread of autograd, because torch has an engine of its own.
def test_backwards_before_the_device():
    """And seeds, generators, page-locked memory and `import torch`, in covering orders."""
    program = pathlib.Path(__file__).parents[3] / "tests/devices/device_order_test.py"
    simulated_torch.run(program, "sim", "DeviceOrder.test_each_order_with_torch")
