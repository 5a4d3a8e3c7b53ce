# SPDX-License-Identifier: Apache-2.0
"""Optimizers and schedulers of torch in the engine: when they step, what they compute, what is saved."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="there is no torch")

import accel  # noqa: E402
from accel.training import fused_update  # noqa: E402

ADAM = [{}, {"weight_decay": 0.1, "amsgrad": True}, {"maximize": True, "betas": (0.5, 0.9), "eps": 1e-4}]
SGD = [{}, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}, {"momentum": 0.9, "dampening": 0.2, "maximize": True}]
KINDS = [*[(torch.optim.AdamW, settings) for settings in ADAM], *[(torch.optim.Adam, settings) for settings in ADAM],
         *[(torch.optim.SGD, settings) for settings in SGD]]


def parameters(seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for shape in ((17, 33), (5,), (64, 65))]


def set_gradients(tensors, seed):
    generator = torch.Generator().manual_seed(seed)
    for tensor in tensors:
        tensor.grad = torch.randn(tensor.shape, generator=generator).to(tensor.dtype)


@pytest.mark.parametrize("kind, settings", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_updates_equal_those_of_the_fused_form(accelerator, kind, settings, dtype):
    mine, theirs = parameters(dtype=dtype), parameters(dtype=dtype)
    optimizer = accelerator.prepare(kind([{"params": mine[:2]}, {"params": mine[2:], "lr": 0.05}], lr=0.01, **settings))
    reference = kind([{"params": theirs[:2]}, {"params": theirs[2:], "lr": 0.05}], lr=0.01, fused=True, **settings)
    for step in range(8):
        for tensors in (mine, theirs):
            set_gradients(tensors, step)
        if step == 3:  # one has no gradient in a step
            mine[1].grad = theirs[1].grad = None
        if step == 5:
            optimizer.param_groups[0]["lr"] = reference.param_groups[0]["lr"] = 0.02
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        optimizer.step()
        reference.step()
    assert repr(optimizer).endswith("fused)")
    assert all(torch.equal(left, right) for left, right in zip(mine, theirs))
    if kind is torch.optim.SGD and dtype == torch.bfloat16:
        return  # two runs of torch's own fused SGD already differ in the last bit of a momentum here and there
    for left, right in zip(mine, theirs):
        states, expected = optimizer.state[left], reference.state[right]
        assert {name: torch.equal(states[name], expected[name]) for name in expected if expected[name] is not None} == {
            name: True for name in states}


# Regression: `foreach=False` of a torch optimizer was passed by, and `betas` that are tensors were an error.
def test_torch_computes_what_it_was_asked_for(accelerator):
    class Own(torch.optim.SGD):
        pass

    tensors = parameters()
    asked = [torch.optim.AdamW(tensors, foreach=True), torch.optim.AdamW(tensors, foreach=False), torch.optim.AdamW(tensors, fused=False),
             Own(tensors), torch.optim.RMSprop(tensors), torch.optim.AdamW(tensors, lr=torch.tensor(0.1)),
             torch.optim.Adam(tensors, betas=(torch.tensor(0.9), torch.tensor(0.999)), foreach=False)]
    with_hook = torch.optim.AdamW(tensors)
    seen = []
    with_hook.register_step_post_hook(lambda *_: seen.append("hook"))
    for optimizer in (*asked, with_hook):
        assert not fused_update.fits(optimizer)
        prepared = accelerator.prepare(optimizer)
        set_gradients(tensors, 1)
        before = tensors[0].detach().clone()
        prepared.step()
        assert not torch.equal(before, tensors[0])
    assert seen == ["hook"]
    accel.PartialState._reset_state()
    unfused = accel.Accelerator(cpu=True, fused_optimizers=False)
    prepared = unfused.prepare(torch.optim.AdamW(tensors))
    prepared.step()
    assert not repr(prepared).endswith("fused)")
    unfused.free_memory()


# Regression: a torch optimizer updated wrong elements where gradient, state and parameter were laid out differently, as
# `channels_last` and contiguous.
@pytest.mark.parametrize("settings", [{}, {"amsgrad": True}])
def test_gradients_and_states_of_another_layout_are_left_to_torch(accelerator, settings):
    """The fused kernels go through the memory of all as if they were laid out alike."""
    generator = torch.Generator().manual_seed(1)
    mine, theirs = (torch.nn.Parameter(torch.randn(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))) for _ in range(2))
    optimizer, plain = accelerator.prepare(torch.optim.Adam([mine], lr=0.1, **settings)), torch.optim.Adam([theirs], lr=0.1, **settings)
    for step in range(6):
        theirs.grad = torch.randn(4, 3, 2, 2, generator=generator)
        mine.grad = theirs.grad.to(memory_format=torch.channels_last) if step == 1 else theirs.grad.clone()
        if step == 3:  # as of a checkpoint of a model of another layout
            optimizer.state[mine]["exp_avg"] = optimizer.state[mine]["exp_avg"].to(memory_format=torch.channels_last)
        if step == 5:  # a model that is laid out anew
            mine.data, mine.grad = (tensor.to(memory_format=torch.channels_last) for tensor in (mine.data, mine.grad))
        optimizer.step()
        plain.step()
        torch.testing.assert_close(mine, theirs)


def test_parameters_with_gaps_are_left_to_torch(accelerator):
    mine, theirs = (torch.nn.Parameter(torch.linspace(-1, 1, 24).reshape(4, 6)[:, ::2]) for _ in range(2))
    optimizer, plain = accelerator.prepare(torch.optim.AdamW([mine], lr=0.1)), torch.optim.AdamW([theirs], lr=0.1)
    for step in range(3):
        mine.grad, theirs.grad = (torch.empty_like(mine).fill_(step - 0.7) for _ in range(2))
        optimizer.step()
        plain.step()
        torch.testing.assert_close(mine, theirs)


def test_steps_of_any_type(accelerator):
    """Those of a program, or of a file that was written under another default type."""
    mine, theirs = parameters(), parameters()
    optimizer, reference = accelerator.prepare(torch.optim.Adam(mine)), torch.optim.Adam(theirs, fused=True)
    for step in range(4):
        for tensors in (mine, theirs):
            set_gradients(tensors, step)
        for place, tensor in enumerate(mine) if step == 2 else ():
            former = optimizer.state[tensor]["step"]
            optimizer.state[tensor]["step"] = (former.double(), int(former), former.clone())[place]
        optimizer.step()
        reference.step()
    assert all(map(torch.equal, mine, theirs))
    assert {optimizer.state[tensor]["step"].dtype for tensor in mine} == {torch.float32}


def test_sparse_gradients_are_left_to_torch(accelerator):
    embedding = torch.nn.Embedding(10, 3, sparse=True)
    model, optimizer = accelerator.prepare(embedding, torch.optim.SGD(embedding.parameters(), lr=0.5))
    before = embedding.weight.detach().clone()
    model(torch.tensor([1, 4])).sum().backward()
    optimizer.step()
    assert (before - embedding.weight)[:, 0].nonzero().flatten().tolist() == [1, 4]


def test_a_momentum_that_comes_later(accelerator):
    tensors = parameters()
    others = [torch.nn.Parameter(tensor.detach().clone()) for tensor in tensors]
    optimizer, plain = accelerator.prepare(torch.optim.SGD(tensors, lr=0.1, momentum=0.9)), torch.optim.SGD(others, lr=0.1, momentum=0.9)
    for step in range(4):
        for group in (tensors, others):
            set_gradients(group, step)
            if step == 0:
                group[1].grad = None
        optimizer.step()
        plain.step()
    for mine, theirs in zip(tensors, others):
        torch.testing.assert_close(mine, theirs)


def test_closures(accelerator):
    weight = torch.nn.Parameter(torch.tensor([3.0, -2.0]))
    optimizer = accelerator.prepare(torch.optim.LBFGS([weight], max_iter=20))

    def closure():
        optimizer.zero_grad()
        loss = weight.square().sum()
        accelerator.backward(loss)
        return loss

    assert optimizer.step(closure).item() == 13 and weight.abs().max() < 1e-4
    other = torch.nn.Parameter(torch.ones(2))
    plain = accelerator.prepare(torch.optim.SGD([other], lr=0.5))

    def of_other():
        loss = other.sum()
        loss.backward()
        return loss

    assert plain.step(of_other).item() == 2 and other.tolist() == [0.5, 0.5]


def test_steps_and_schedules_wait_for_complete_gradients():
    accelerator = accel.Accelerator(cpu=True, gradient_accumulation_steps=3)
    model = torch.nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    seen = []
    for _ in range(6):
        with accelerator.accumulate(model):
            before = model.weight.item()
            accelerator.backward(model(torch.ones(1, 1)).sum())
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            seen.append((round(before - model.weight.item(), 4), round(scheduler.get_last_lr()[0], 4), model.weight.grad is None))
    assert seen == [(0, 1, False), (0, 1, False), (1, 0.5, True), (0, 0.5, False), (0, 0.5, False), (0.5, 0.3333, True)]
    assert not accelerator.optimizer_step_was_skipped
    accelerator.free_memory()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="losses are scaled for fp16, which is refused on a CPU")
def test_overflows_skip_the_step_and_the_schedule():
    accelerator = accel.Accelerator(mixed_precision="fp16")
    model = torch.nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    before, scale = model.weight.item(), accelerator.loss_scale
    accelerator.backward(model(torch.ones(1, 1, device=accelerator.device.type)).sum() * float("inf"))
    optimizer.step()
    scheduler.step()
    assert optimizer.step_was_skipped and accelerator.optimizer_step_was_skipped and model.weight.item() == before
    assert scheduler.get_last_lr() == [0.1] and accelerator.loss_scale == scale / 2
    optimizer.zero_grad()
    accelerator.backward(model(torch.ones(1, 1)).sum())
    accelerator.clip_grad_norm_(model.parameters(), 10.0)
    assert model.weight.grad.item() == 1
    optimizer.step()
    scheduler.step()
    assert not optimizer.step_was_skipped and model.weight.item() != before and scheduler.last_epoch == 1
    accelerator.free_memory()


def test_schedules_with_an_end_and_with_a_metric(accelerator):
    tensors = parameters()
    optimizer = torch.optim.SGD(tensors, lr=1.0)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=3)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    optimizer, cycle, plateau = accelerator.prepare(optimizer, cycle, plateau)
    for _ in range(5):
        optimizer.step()
        cycle.step()
    assert cycle.last_epoch == 3
    rate = optimizer.param_groups[0]["lr"]
    plateau.step(1.0)
    plateau.step(metrics=1.0)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(rate / 10)


def test_groups_that_are_added_later(accelerator):
    first, second = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    optimizer = accelerator.prepare(torch.optim.SGD([first], lr=0.5))
    optimizer.add_param_group({"params": [second], "lr": 0.25})
    set_gradients([first, second], 0)
    second.grad = torch.ones(2)
    optimizer.step()
    assert second.tolist() == [0.75, 0.75]


def test_what_a_step_raises_comes_out(accelerator):
    class Failing(torch.optim.SGD):
        def step(self, closure=None):
            raise KeyError("in step")

    optimizer = accelerator.prepare(Failing(parameters(), lr=0.1))
    with pytest.raises(KeyError, match="in step"):
        optimizer.step()
    assert optimizer.step_was_skipped


def test_gradients_of_several_ranks(ranks):
    printed = ranks("""
        import torch
        from accel import Accelerator
        accelerator = Accelerator(cpu=True)
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
        model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
        for step in range(4):
            loss = model(torch.ones(1, 3) * (accelerator.process_index + step)).square().sum()
            accelerator.backward(loss)
            norm = accelerator.clip_grad_norm_(model.parameters(), 1e6)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        norms = accelerator.gather(norm.reshape(1))
        print(norms[0].item() == norms[1].item(), scheduler.last_epoch, accelerator.reduce(norm, "mean").item() == norm.item())
        """)
    assert printed == ["True 8 True\n"] * 2  # as in Accelerate: a step for each rank


# Regression: casts of weights under bf16 were kept when an update counted no version of them, as torch's fused ones.
def test_a_step_is_seen_under_bf16():
    """Weights that were cast for a forward are cast again after an update."""
    accelerator = accel.Accelerator(cpu=True, mixed_precision="bf16")
    model = torch.nn.Linear(2, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.5))
    losses = []
    for _ in range(2):
        losses.append(model(torch.ones(1, 2)).sum())
        accelerator.backward(losses[-1])
        optimizer.step()
        optimizer.zero_grad()
    assert losses[1].item() == pytest.approx(losses[0].item() - 1.5, abs=0.05)


# Regression: on several ranks a method of a prepared model other than its forward, the model inside, or a parameter that was
# frozen when it was prepared trained without an exchange, and without a word.
def test_gradients_that_no_exchange_has_covered(ranks):
    """They are told once, whatever way the gradient came; what the prepared forward gave is not."""
    printed = ranks("""
        import logging
        import torch
        from accel import Accelerator

        told = []

        class Told(logging.Handler):
            def emit(self, record):
                if "have not exchanged" in record.getMessage():
                    told.append(record.getMessage())

        logging.getLogger("accel").addHandler(Told())

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.head = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)

            def forward(self, x):
                return self.body(x) + self.head(x)

            def loss(self, x):
                return self(x).square().mean()

        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)

        def train(computes, frozen=False, steps=4):
            told.clear()
            net = Net()
            net.head.requires_grad_(not frozen)
            model, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1))
            net.head.requires_grad_()
            for _ in range(steps):
                with accelerator.accumulate(model):
                    accelerator.backward(computes(model, torch.ones(2, 2)))
                    optimizer.step()
                    optimizer.zero_grad()
            accelerator.free_memory()
            return list(told)

        assert train(lambda model, x: model(x).square().mean()) == []
        for bypass in (lambda model, x: model.loss(x), lambda model, x: accelerator.unwrap_model(model)(x).sum()):
            (text,) = train(bypass)
            assert "'body.weight'" in text and "followed no forward of the prepared model" in text, text
        (text,) = train(lambda model, x: model(x).sum(), frozen=True)
        assert "'head.weight'" in text and "required no gradient when their model was prepared" in text, text
        print("done")
    """)
    assert printed == ["done\n"] * 2


def test_the_engine_names_gradients_that_no_exchange_has_covered(ranks):
    """It sees each gradient: also one that is added to what was exchanged, and not what a later exchange covers."""
    printed = ranks("""
        import logging
        import torch
        from accel import Accelerator
        from accel.logging import log_engine

        told = []

        class Told(logging.Handler):
            def emit(self, record):
                told.append(record.getMessage())

        logger = logging.getLogger("tests.exchange")
        logger.addHandler(Told())
        log_engine(logger=logger)

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.words = torch.nn.Embedding(4, 2, sparse=True)
                self.body, self.head = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)

            def forward(self, x):
                words = self.words(x)
                return self.body(words) + self.head(words)

            def loss(self, x):
                return self(x).square().mean()

        accelerator = Accelerator(cpu=True)
        x = torch.tensor([1, 3])

        def train(*forwards, frozen=False):
            told.clear()
            net = Net()
            net.head.requires_grad_(not frozen)
            model, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1))
            net.head.requires_grad_()
            for _ in range(2):
                for forward in forwards:
                    accelerator.backward(forward(model))
                optimizer.step()
                optimizer.zero_grad()
            return [text for text in told if "have not exchanged" in text]

        prepared, method, inside = lambda model: model(x).sum(), lambda model: model.loss(x), lambda model: accelerator.unwrap_model(model)(x).sum()
        for forwards in ((prepared,), (method, prepared), (inside, prepared)):
            assert train(*forwards) == [], told
        for forwards in ((method,), (inside,), (prepared, method)):
            (text,) = train(*forwards)
            assert "'body.weight', 'body.bias', 'head.weight', 'head.bias', and" in text, text
        (text,) = train(prepared, frozen=True)
        assert "'head.weight', 'head.bias', and" in text and "required no gradient when" in text, text
        print("done")
    """)
    assert printed == ["done\n"] * 2
