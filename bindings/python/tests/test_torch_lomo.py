# SPDX-License-Identifier: Apache-2.0
"""Optimizers of the package lomo_optim, which update in a backward of their own. A class with their methods stands for them."""

import sys
import types

import pytest

torch = pytest.importorskip("torch", reason="there is no torch")

import accel  # noqa: E402


@pytest.fixture
def lomo(monkeypatch):
    class Lomo(torch.optim.Optimizer):
        __module__ = "lomo_optim.lomo"

        def __init__(self, model, lr):
            super().__init__(model.parameters(), {"lr": lr})
            self.rates = []

        def fused_backward(self, loss, lr):
            self.rates.append(lr)
            loss.backward()
            with torch.no_grad():
                for parameter in self.param_groups[0]["params"]:
                    parameter -= lr * parameter.grad
                    parameter.grad = None

        def step(self, closure=None):
            pass

    package = types.ModuleType("lomo_optim")
    package.Lomo = Lomo
    monkeypatch.setitem(sys.modules, "lomo_optim", package)
    return Lomo


# Regression: `backward(loss, learning_rate=)`, which is how scripts step LOMO, was a TypeError.
def test_backward_with_a_learning_rate_is_theirs(lomo):
    accelerator = accel.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = torch.nn.Linear(2, 1, bias=False)
    before = model.weight.detach().clone()
    model, optimizer = accelerator.prepare(model, lomo(model, 0.1))
    loss = model(torch.ones(1, 2)).sum()
    accelerator.backward(loss, learning_rate=0.5)
    optimizer.step()
    optimizer.zero_grad()
    assert torch.equal(model.weight, before - 0.5 / 2) and model.weight.grad is None and optimizer.optimizer.rates == [0.5]
    accelerator.lomo_backward(model(torch.ones(1, 2)).sum(), 1.0)
    assert torch.equal(model.weight, before - 0.25 - 1.0)
    with pytest.raises(ValueError, match="learning rate must be passed"):
        accelerator.lomo_backward(loss)
    accelerator.backward(model(torch.ones(1, 2)).sum())  # without one it is a backward like any other
    assert torch.equal(model.weight.grad, torch.full((1, 2), 0.5))


def test_a_learning_rate_is_for_lomo_only():
    accelerator = accel.Accelerator(cpu=True)
    model = torch.nn.Linear(2, 1)
    model, _ = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(TypeError, match="learning_rate"):
        accelerator.backward(model(torch.ones(1, 2)).sum(), learning_rate=0.1)


def test_several_ranks_are_refused(ranks):
    for text in ranks("""
    import torch, accel

    class Lomo(torch.optim.Optimizer):
        __module__ = "lomo_optim"
        fused_backward = None

    accelerator = accel.Accelerator(cpu=True)
    model = torch.nn.Linear(2, 1)
    model, _ = accelerator.prepare(model, Lomo(model.parameters(), {}))
    try:
        accelerator.backward(model(torch.ones(1, 2)).sum(), learning_rate=0.1)
    except NotImplementedError as error:
        print(error)
    """):
        assert text.startswith("Lomo of lomo_optim asks torch's process group")
