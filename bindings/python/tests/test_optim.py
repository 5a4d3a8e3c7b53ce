# SPDX-License-Identifier: Apache-2.0
"""Optimizers and schedules: arguments, groups, state dicts, the program's own update."""

import copy
import inspect
import pickle

import pytest

import accel
from accel import errors, nn, ops, optim
from accel.optim import lr_scheduler


def trained(optimizer_class, **settings):
    accel.set_seed(0)
    model = nn.Linear(4, 4)
    optimizer = optimizer_class(model.parameters(), **settings)
    before = model.weight.clone()
    for _ in range(2):
        model(accel.ones(2, 4)).square().mean().backward()
        assert optimizer.step()
        optimizer.zero_grad()
    assert (model.weight != before).any()
    return model, optimizer


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "AdamW8bit", "Adagrad", "RMSprop", "Adamax", "NAdam", "RAdam", "Lion", "LAMB",
                                  "Adafactor"])
def test_every_optimizer_steps_and_resumes(name):
    kind = getattr(optim, name)
    model, optimizer = trained(kind, lr=0.01)
    assert optimizer.param_groups[0]["lr"] == 0.01 and name in repr(optimizer)
    other = kind(nn.Linear(4, 4), lr=0.5)
    other.load_state_dict(optimizer.state_dict())
    assert other.param_groups[0]["lr"] == 0.01


# Regression: `zero_grad()` of optimizers and modules left zeros, with which momentum and weight decay moved parameters on.
@pytest.mark.parametrize("clear", [lambda model, optimizer: optimizer.zero_grad(), lambda model, optimizer: model.zero_grad()])
def test_parameters_without_a_gradient_stay(clear):
    """Also those that had one before, which momentum and weight decay would move on."""
    model = nn.Linear(2, 1)
    optimizer = optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    model(accel.ones(1, 2)).sum().backward()
    optimizer.step()
    clear(model, optimizer)
    before = model.weight.tolist()
    optimizer.step()
    assert model.weight.grad is None and model.weight.tolist() == before
    model(accel.ones(1, 2)).sum().backward()
    model.weight.requires_grad = False
    optimizer.step()
    assert model.weight.tolist() == before


def test_muon_is_for_matrices():
    model = nn.Linear(4, 4, bias=False)
    optimizer = optim.Muon(model, lr=0.1, nesterov=False)
    model(accel.ones(1, 4)).sum().backward()
    assert optimizer.step()
    with pytest.raises(errors.ArgumentError):
        optim.Muon(nn.Linear(2, 2))


def test_groups_and_settings():
    model = nn.Linear(2, 2)
    optimizer = optim.AdamW([{"params": [model.weight], "lr": 0.1, "betas": (0.5, 0.6)}, {"params": model.bias, "weight_decay": 0.0}], lr=0.2)
    first, second = optimizer.param_groups
    assert (first["lr"], second["lr"], first["betas"], second["weight_decay"]) == (0.1, 0.2, (0.5, 0.6), 0.0)
    second["lr"] = 0.3
    assert optimizer.param_groups[1]["lr"] == 0.3 and "lr" in dict(first)
    optimizer.set_update_precision("master_weights")
    with pytest.raises(KeyError):
        first["absent"]
    for wrong in (lambda: optim.AdamW(model, momentum=1), lambda: optim.AdamW([]), lambda: optim.AdamW(3), lambda: optim.AdamW(model.weight),
                  lambda: optim.AdamW(model, lr=-1), lambda: optim.AdamW([model.weight, model.weight])):
        with pytest.raises((TypeError, ValueError)):
            wrong()


class SignSGD(optim.Optimizer):
    state_names = ("calls",)

    def update(self, parameter, gradient, states, step, lr, weight_decay):
        states["calls"].add_(1)
        parameter.add_(gradient.sign() * -lr)


def test_own_update():
    model, optimizer = trained(SignSGD, lr=0.01)
    entry = optimizer.state_dict()["state"]
    assert list(entry.values())[0]["calls"].min().item() == 2

    class Fails(optim.Optimizer):
        def update(self, *_):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        trained(Fails)
    with pytest.raises(TypeError, match="no setting 'momentum'"):
        SignSGD(model, momentum=1)


SCHEDULES = [
    (lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step)), [1, 0.5, 1 / 3]),
    (lambda optimizer: lr_scheduler.StepLR(optimizer, 2, 0.1), [1, 1, 0.1]),
    (lambda optimizer: lr_scheduler.MultiStepLR(optimizer, [1, 2], 0.5), [1, 0.5, 0.25]),
    (lambda optimizer: lr_scheduler.ConstantLR(optimizer, 0.5, 2), [0.5, 0.5, 1]),
    (lambda optimizer: lr_scheduler.LinearLR(optimizer, 0.5, 1.0, 2), [0.5, 0.75, 1]),
    (lambda optimizer: lr_scheduler.ExponentialLR(optimizer, 0.5), [1, 0.5, 0.25]),
    (lambda optimizer: lr_scheduler.PolynomialLR(optimizer, 2, 1.0), [1, 0.5, 0]),
    (lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 2), [1, 0.5, 0]),
    (lambda optimizer: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 2), [1, 0.5, 1]),
    (lambda optimizer: lr_scheduler.get_linear_schedule_with_warmup(optimizer, 1, 3), [0, 1, 0.5]),
    (lambda optimizer: lr_scheduler.get_cosine_schedule_with_warmup(optimizer, 1, 3), [0, 1, 0.5]),
    (lambda optimizer: lr_scheduler.get_cosine_with_hard_restarts_schedule_with_warmup(optimizer, 1, 3, 2), [0, 1, 1]),
    (lambda optimizer: lr_scheduler.get_inverse_sqrt_schedule(optimizer, 1), [0, 1, 0.5**0.5]),
    (lambda optimizer: lr_scheduler.get_constant_schedule_with_warmup(optimizer, 2), [0, 0.5, 1]),
]


@pytest.mark.parametrize("make, expected", SCHEDULES)
def test_schedules(make, expected):
    optimizer = optim.SGD(nn.Linear(1, 1), lr=1.0)
    scheduler = make(optimizer)
    assert [row[0] for row in scheduler.curve(3).tolist()] == pytest.approx(expected, abs=1e-9)
    rates = []
    for _ in range(3):
        rates += scheduler.get_last_lr()
        scheduler.step()
    assert rates == pytest.approx(expected, abs=1e-9)
    again = make(optim.SGD(nn.Linear(1, 1), lr=1.0))
    again.load_state_dict(scheduler.state_dict())
    assert again.get_last_lr() == scheduler.get_last_lr()


def test_schedules_with_settings():
    optimizer = optim.SGD(nn.Linear(1, 1), lr=1.0, momentum=0.9)
    one = lr_scheduler.OneCycleLR(optimizer, 1.0, epochs=1, steps_per_epoch=10, anneal_strategy="linear", pct_start=0.5)
    assert one.get_last_lr() == pytest.approx([1 / 25])
    cyclic = lr_scheduler.CyclicLR(optimizer, 0.1, 1.0, step_size_up=2, mode="triangular2")
    assert cyclic.curve(3).tolist()[2] == pytest.approx([1.0])
    plateau = lr_scheduler.ReduceLROnPlateau(optim.SGD(nn.Linear(1, 1), lr=1.0), patience=0, factor=0.5)
    for metric in (1.0, 1.0, 1.0):
        plateau.step(metric)
    assert plateau.get_last_lr() == [0.25]
    optimizer = optim.SGD(nn.Linear(1, 1), lr=1.0)
    chained = lr_scheduler.ChainedScheduler([lr_scheduler.ExponentialLR(optimizer, 0.5), lr_scheduler.ConstantLR(optimizer, 0.5, 1)])
    assert chained.get_last_lr() == [0.5]
    optimizer = optim.SGD(nn.Linear(1, 1), lr=1.0)
    parts = [lr_scheduler.ConstantLR(optimizer, 0.5, 9), lr_scheduler.ExponentialLR(optimizer, 0.5)]
    assert [row[0] for row in lr_scheduler.SequentialLR(optimizer, parts, [2]).curve(4).tolist()] == [0.5, 0.5, 1, 0.5]
    for wrong in (lambda: lr_scheduler.OneCycleLR(optimizer, 1.0), lambda: lr_scheduler.CyclicLR(optimizer, 0.1, 1, mystery=1),
                  lambda: lr_scheduler.StepLR(optimizer, 0)):
        with pytest.raises((TypeError, ValueError)):
            wrong()


# Regression: optimizers took no positional settings, named parameters, `foreach` and `fused`, and groups had no `params`.
def test_arguments_of_torch():
    model = nn.Linear(2, 2)
    optimizer = optim.AdamW(model.named_parameters(), 0.1, (0.5, 0.6), 1e-4, 0.2, foreach=True, fused=False)
    group = optimizer.param_groups[0]
    assert (group["lr"], group["betas"], group["eps"], group["weight_decay"]) == (0.1, (0.5, 0.6), 1e-4, 0.2)
    assert [parameter.shape for parameter in group["params"]] == [(2, 2), (2,)] and "params" in dict(group)
    assert optim.SGD(model.parameters(), 0.1, 0.9).param_groups[0]["momentum"] == 0.9
    assert len(optim.SGD([{"params": model.named_parameters()}], 0.1).param_groups[0]["params"]) == 2
    for wrong, kind in ((lambda: optim.SGD(model, 0.1, 0.9, momentum=0.5), TypeError),
                        (lambda: optim.SGD(model, 0.1, *range(9)), TypeError),
                        (lambda: optim.Adam(model, capturable=True), NotImplementedError)):
        with pytest.raises(kind):
            wrong()


# Regression: optimizers had no `state`.
def test_the_state_of_a_parameter():
    model, optimizer = trained(optim.Adam, lr=0.01)
    assert set(optimizer.state[model.weight]) >= {"exp_avg", "exp_avg_sq", "step"} and len(optimizer.state) == 2
    assert optimizer.state[model.bias]["exp_avg"].shape == (4,)
    with pytest.raises(KeyError, match="has not updated"):
        optimizer.state[accel.ones(4)]
    assert {parameter.shape for parameter in optimizer.state} == {(4, 4), (4,)}


# Regression: optimizers and schedules, prepared or not, could not be copied or pickled.
def test_copies_of_optimizers_and_schedules(accelerator):
    model, optimizer = trained(optim.AdamW, lr=0.01, weight_decay=0.5)
    scheduler = lr_scheduler.StepLR(optimizer, 1, 0.5)
    scheduler.step()
    for copied in (copy.deepcopy(scheduler), pickle.loads(pickle.dumps(scheduler))):
        assert copied.get_last_lr() == [0.005] and copied.last_epoch == 1 and copied.optimizer is not optimizer
        group = copied.optimizer.param_groups[0]
        assert group["weight_decay"] == 0.5 and (group["params"][0] == model.weight).all() and group["params"][0] is not model.weight
        assert len(copied.optimizer.state) == 2
        copied.step()
    assert scheduler.get_last_lr() == [0.005]
    prepared = accelerator.prepare(optimizer)
    assert pickle.loads(pickle.dumps(prepared)).param_groups[0]["lr"] == 0.005
    assert copy.deepcopy(accelerator.prepare(scheduler)).get_last_lr() == [0.005]


# Regression: prepared schedules lacked `get_lr()`, `last_epoch`, `base_lrs`, `print_lr()`.
def test_what_a_prepared_schedule_tells(accelerator, capsys):
    optimizer = optim.SGD(nn.Linear(1, 1), lr=1.0)
    scheduler = accelerator.prepare(lr_scheduler.ExponentialLR(optimizer, 0.5))
    assert scheduler.last_epoch == 0 and scheduler.base_lrs == [1.0] and scheduler.get_lr() == [1.0]
    scheduler.print_lr()
    assert "[1.0]" in capsys.readouterr().out


# Regression: the fourth argument of `get_cosine_schedule_with_warmup()` was not the fourth argument of transformers.
def test_arguments_of_transformers():
    def rates(make, steps=11):
        scheduler = make(optim.SGD(nn.Linear(1, 1), lr=1.0))
        return [row[0] for row in scheduler.curve(steps).tolist()]

    half = rates(lambda optimizer: lr_scheduler.get_cosine_schedule_with_warmup(optimizer, 0, 10, 0.5))
    assert half[-1] == pytest.approx(0) and half[5] == pytest.approx(0.5)
    whole = rates(lambda optimizer: lr_scheduler.get_cosine_schedule_with_warmup(optimizer, 2, 10, 1.0))
    assert whole[:3] == pytest.approx([0, 0.5, 1]) and whole[6] == pytest.approx(0) and whole[10] == pytest.approx(1)
    least = rates(lambda optimizer: lr_scheduler.get_cosine_schedule_with_warmup(optimizer, 0, 10, min_factor=0.25))
    assert least[-1] == pytest.approx(0.25)


# Regression: schedules did not take `last_epoch`.
def test_going_on_at_a_step():
    """last_epoch: as after the steps before."""
    for make in (lambda optimizer, **at: lr_scheduler.StepLR(optimizer, 2, 0.5, **at), lambda optimizer, **at: lr_scheduler.ExponentialLR(
            optimizer, 0.5, **at), lambda optimizer, **at: lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step), **at),
            lambda optimizer, **at: lr_scheduler.get_linear_schedule_with_warmup(optimizer, 2, 8, **at)):
        optimizer = optim.SGD(nn.Linear(1, 1), lr=1.0)
        first = make(optimizer)
        for _ in range(3):
            first.step()
        kept = optimizer.state_dict()
        first.step()
        other = optim.SGD(nn.Linear(1, 1), lr=1.0)
        other.load_state_dict(kept)
        second = make(other, last_epoch=3)
        assert second.last_epoch == 4 and second.get_last_lr() == pytest.approx(first.get_last_lr())
    with pytest.raises(KeyError, match="initial_lr"):
        lr_scheduler.StepLR(optim.SGD(nn.Linear(1, 1), lr=1.0), 2, last_epoch=3)


# Regression: `LambdaLR` did not take a function for each group.
def test_a_function_for_each_group():
    model = nn.Linear(1, 1)
    optimizer = optim.SGD([{"params": [model.weight], "lr": 1.0}, {"params": [model.bias], "lr": 2.0}])
    scheduler = lr_scheduler.LambdaLR(optimizer, [lambda step: 1 / (1 + step), lambda step: 3])
    scheduler.step()
    assert scheduler.get_last_lr() == [0.5, 6]
    with pytest.raises(ValueError, match="1 functions; the optimizer has 2 groups"):
        lr_scheduler.LambdaLR(optimizer, [lambda step: 1])


def test_a_step_by_a_closure():
    model = nn.Linear(2, 1)
    optimizer = optim.SGD(model, lr=0.5)
    before = model.weight.clone()

    def closure():
        optimizer.zero_grad()
        loss = model(accel.ones(1, 2)).sum()
        loss.backward()
        return loss

    with accel.no_grad():
        loss = optimizer.step(closure)
    assert ops.allclose(model.weight, before - 0.5)
    assert loss.item() == pytest.approx(before.sum().item() + model.bias.item() + 0.5, abs=1e-5)
    with pytest.raises(ZeroDivisionError):
        optimizer.step(lambda: 1 / 0)


# Regression: a closure of `step()` that returned None or a number was a `TypeError`.
def test_closures_may_answer_anything():
    """As those of torch.optim: the answer is handed back as it is."""
    model = nn.Linear(1, 1, bias=False)
    optimizer = optim.SGD(model, lr=1.0)

    for place, answer in enumerate((None, 0.5, "text", accel.ones(1))):
        def closure(answer=answer):
            optimizer.zero_grad()
            model(accel.ones(1, 1)).sum().backward()
            return answer

        before = model.weight.item()
        assert optimizer.step(closure) is answer, place
        assert model.weight.item() == pytest.approx(before - 1)


# Regression: the error of `last_epoch` advised to set `initial_lr`, which was refused.
def test_rates_to_go_on_from_can_be_set():
    """The usual lines of torch: initial_lr of the groups, and then last_epoch."""
    model = nn.Linear(1, 1)

    def groups(**more):
        return [{"params": [model.weight], **more}, {"params": [model.bias], **more}]

    expected = None
    for set_it in (lambda group: group.__setitem__("initial_lr", 4.0), lambda group: group.setdefault("initial_lr", 4.0), None):
        optimizer = optim.Adam(groups(initial_lr=4.0) if set_it is None else groups(), lr=1.0)
        model(accel.ones(1, 1)).sum().backward()
        optimizer.step()
        kept = {name: tensor.clone() for name, tensor in optimizer.state[model.weight].items()}
        for group in optimizer.param_groups if set_it else ():
            set_it(group)
        assert [group["initial_lr"] for group in optimizer.param_groups] == [4, 4] and all("initial_lr" in group for group in optimizer.param_groups)
        assert all(ops.equal(tensor, kept[name]) for name, tensor in optimizer.state[model.weight].items())  # and nothing else changes
        scheduler = lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step), last_epoch=3)
        expected = expected or scheduler.get_last_lr()
        assert scheduler.get_last_lr() == expected == [pytest.approx(4 / 5)] * 2


@pytest.mark.parametrize("kind", [optim.SGDScheduleFree, optim.AdamWScheduleFree])
def test_schedule_free_optimizers_are_switched(kind):
    model = nn.Linear(1, 1, bias=False)
    optimizer = kind(model, lr=0.25)
    for _ in range(3):
        model(accel.ones(1, 1)).sum().backward()
        assert optimizer.step()
        optimizer.zero_grad()
    trained = model.weight.clone()
    optimizer.eval()
    average = model.weight.clone()
    assert (average > trained).all(), "the average lags behind"
    model(accel.ones(1, 1)).sum().backward()
    with pytest.raises(accel.Error, match="evaluation"):
        optimizer.step()
    optimizer.train()
    assert ops.allclose(model.weight, trained)
    assert not optimizer.param_groups[0]["train_mode"] == 0
    optim.SGD(model).eval()  # nothing to switch


def test_editors_see_the_settings():
    settings = inspect.signature(optim.AdamW).parameters
    assert list(settings)[:6] == ["params", "lr", "betas", "eps", "weight_decay", "amsgrad"]
    assert (settings["lr"].default, settings["betas"].default, settings["maximize"].kind) == (0.001, (0.9, 0.999), inspect.Parameter.KEYWORD_ONLY)
    assert inspect.signature(lr_scheduler.OneCycleLR).parameters["anneal_strategy"].default == "cos"
    assert "AdamW" in optim.AdamW.__doc__ and "highest rate" in lr_scheduler.OneCycleLR.__doc__
    by_name = optim.Muon(nn.Linear(2, 2, bias=False), adjust_lr_fn="match_rms_adamw")
    assert by_name.param_groups[0]["adjust_lr_fn"] == 1
    with pytest.raises(ValueError, match="'original', 'match_rms_adamw'"):
        optim.Muon(nn.Linear(2, 2, bias=False), adjust_lr_fn="fast")


@pytest.mark.parametrize("overflows", [0, 1])
@pytest.mark.parametrize("is_prepared", [True, False])
def test_a_schedule_waits_for_its_own_optimizer_or_for_all(overflows, is_prepared):
    """A schedule of the first optimizer, which is prepared, or of none of the prepared ones."""
    scaling = accel.GradScalerKwargs(enabled=True, init_scale=2.0)
    accelerator = accel.Accelerator(cpu=True, kwargs_handlers=[scaling])
    models = [accelerator.prepare(nn.Linear(1, 1, bias=False)) for _ in range(2)]
    plain = [optim.SGD(model, lr=1.0) for model in models]
    own = plain[0] if is_prepared else optim.SGD(nn.Linear(1, 1), lr=1.0)
    scheduler = lr_scheduler.ExponentialLR(own, 0.5)
    *optimizers, scheduler = accelerator.prepare(*plain, scheduler)
    for place, model in enumerate(models):
        accelerator.backward(model(accel.ones(1, 1)).sum() * (float("inf") if place == overflows else 1.0))
        optimizers[place].step()
    assert [optimizer.step_was_skipped for optimizer in optimizers] == [place == overflows for place in range(2)]
    scheduler.step()
    waits = overflows == 0 or not is_prepared
    assert scheduler.get_last_lr() == [1.0 if waits else 0.5]


def test_a_schedule_counts_the_batches_of_all_ranks_or_updates(ranks):
    """The first line is what two ranks of Accelerate print: a step for each rank, and none beyond the end of a schedule."""
    printed = ranks("""
        from accel import Accelerator, nn, optim
        for per_update in (None, True):
            accelerator = Accelerator(cpu=True, scheduler_steps_per_update=per_update)
            optimizer = optim.SGD(nn.Linear(1, 1), lr=1.0)
            halving, cycle = optim.lr_scheduler.ExponentialLR(optimizer, 0.5), optim.lr_scheduler.OneCycleLR(optim.SGD(nn.Linear(1, 1)), 1.0, total_steps=3)
            optimizer, halving, cycle = accelerator.prepare(optimizer, halving, cycle)
            for _ in range(3):
                halving.step(), cycle.step()
            print(halving.get_last_lr(), cycle.last_epoch)
    """)
    assert printed == ["[0.015625] 3\n[0.125] 3\n"] * 2
