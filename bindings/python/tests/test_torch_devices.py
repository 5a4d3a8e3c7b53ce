"""Programs of torch on a simulated accelerator, each in a process of its own."""

import pytest

pytest.importorskip("torch", reason="there is no torch")

import simulated_torch  # noqa: E402

pytestmark = simulated_torch.needs_device


@pytest.mark.parametrize("program", ["torch_device_dispatch.py", "torch_device_optimizers.py", "torch_offload.py"])
def test_it_computes_what_the_cpu_computes(program):
    assert simulated_torch.run(program) == "equal\n"


# Regression: after a backward before `import torch` no device had a thread of autograd, because torch has an engine of its own.
@pytest.mark.parametrize("steps", [("backward", "torch"), ("torch", "backward"), ("torch", "torch's backward"), ("backward", "torch", "torch's backward")])
def test_backwards_before_the_device(steps):
    assert simulated_torch.run("torch_device_order.py", *steps) == "sim:0 sim:0\n"
