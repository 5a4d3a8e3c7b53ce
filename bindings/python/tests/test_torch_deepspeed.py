# SPDX-License-Identifier: Apache-2.0
"""Optimizers and schedules that DeepSpeed's configuration names, in programs of torch."""

import math

import pytest

torch = pytest.importorskip("torch", reason="there is no torch")

from accel import Accelerator, AcceleratorState, DeepSpeedPlugin  # noqa: E402
from accel.parallel.deepspeed_optimizers import Lion, make  # noqa: E402
from accel.parallel.deepspeed_schedules import ConfiguredSchedule  # noqa: E402
from accel.utils import DummyOptim, DummyScheduler  # noqa: E402


def config(**changed):
    return {"gradient_accumulation_steps": 1, "gradient_clipping": "auto", "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
            "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto", "betas": [0.8, 0.9]}},
            "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto",
                                                              "total_num_steps": "auto", "warmup_type": "linear"}},
            "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}, **changed}


def objects():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(16, 4)), batch_size=4)
    return model, loader


class Sized(torch.nn.Linear):
    class config:
        hidden_size = 8


def test_dummies_become_what_the_configuration_names():
    accelerator = Accelerator(cpu=True, deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=config()))
    _, loader = objects()
    model = Sized(4, 1)
    dummy = DummyOptim(model.parameters(), lr=0.01, weight_decay=0.1)
    model, optimizer, loader, scheduler = accelerator.prepare(model, dummy, loader, DummyScheduler(dummy, total_num_steps=8, warmup_num_steps=4))
    assert isinstance(optimizer.optimizer, torch.optim.AdamW)
    group = optimizer.param_groups[0]
    assert group["betas"] == (0.8, 0.9) and group["weight_decay"] == 0.1
    assert accelerator.deepspeed_config["train_batch_size"] == 4 and accelerator.deepspeed_config["zero_optimization"]["reduce_bucket_size"] == 64
    rates = []
    for _ in range(2):
        for (batch,) in loader:
            accelerator.backward(model(batch).square().mean())
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    assert rates == pytest.approx([0.01 * part for part in (0, 1 / 4, 2 / 4, 3 / 4, 1, 3 / 4, 2 / 4, 1 / 4)])


def test_a_scheduler_of_the_program_beside_an_optimizer_of_the_configuration():
    settings = config(zero_optimization={"stage": 1})
    del settings["scheduler"]
    accelerator = Accelerator(cpu=True, deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=settings))
    model, loader = objects()
    dummy = DummyOptim(model.parameters())
    with pytest.raises(ValueError, match="`lr_scheduler_callable`"):
        accelerator.prepare(model, dummy, loader, DummyScheduler(dummy))
    made = []
    scheduler = DummyScheduler(dummy, lr_scheduler_callable=lambda optimizer: made.append(torch.optim.lr_scheduler.StepLR(optimizer, 1)) or made[0])
    *_, scheduler = accelerator.prepare(model, dummy, loader, scheduler)
    assert scheduler.scheduler is made[0]


def test_an_optimizer_here_and_there_is_refused():
    accelerator = Accelerator(cpu=True, deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=config(zero_optimization={"stage": 1})))
    model, loader = objects()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="You cannot specify an optimizer in the config file and in the code at the same time."):
        accelerator.prepare(model, optimizer, loader)
    dummy = DummyOptim(model.parameters())
    with pytest.raises(ValueError, match="You cannot specify a scheduler in the config file and in the code at the same time."):
        accelerator.prepare(model, dummy, loader, torch.optim.lr_scheduler.StepLR(optimizer, 1))


def test_sizes_that_follow_from_the_model_need_it():
    accelerator = Accelerator(cpu=True, deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=config()))
    model, loader = objects()
    with pytest.raises(ValueError, match="Can't find `model.config` entry"):
        accelerator.prepare(model, DummyOptim(model.parameters()), loader)
    model.config = object()
    with pytest.raises(ValueError, match="Can find neither `model.config.hidden_size` nor"):
        accelerator.prepare(model, DummyOptim(model.parameters()), loader)


# What DeepSpeed 0.19.8 gives to two groups that begin with rates of 0.01 and 0.02 (None: as the first one), and the first beta of AdamW.
RECORDED = [
    ("WarmupLR", {},
     [0.0, 0.0, 0.001003433319, 0.001590404182, 0.002006866638, 0.002329900014, 0.002593837501, 0.002816993467, 0.003010299957],
     [0.0, 0.0, 0.002006866638, 0.003180808365, 0.004013733276, 0.004659800029, 0.005187675003, 0.005633986933, 0.006020599913],
     None),
    ("WarmupLR", {"warmup_min_lr": 0.001, "warmup_max_lr": 0.1, "warmup_num_steps": 4},
     [0.001, 0.001, 0.0505, 0.07945564379, 0.1, 0.1, 0.1, 0.1, 0.1], None, None),
    ("WarmupLR", {"warmup_max_lr": [0.1, 0.2], "warmup_num_steps": 1, "warmup_type": "linear"},
     [0.0, 0.0, 0.05, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1], [0.0, 0.0, 0.1, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2], None),
    ("WarmupDecayLR", {"total_num_steps": 8, "warmup_num_steps": 3},
     [0.0, 0.0, 0.0006309297536, 0.001, 0.001, 0.0008, 0.0006, 0.0004, 0.0002], None, None),
    ("WarmupDecayLR", {"total_num_steps": 6, "warmup_num_steps": 4, "warmup_min_lr": 0.002, "warmup_max_lr": 0.05, "warmup_type": "linear"},
     [0.002, 0.002, 0.014, 0.026, 0.038, 0.05, 0.026, 0.002, 0.002], None, None),
    ("WarmupCosineLR", {"total_num_steps": 8, "warmup_num_steps": 3},
     [0.0, 0.0, 0.006309297536, 0.01, 0.009045180463, 0.006545430463, 0.003455569537, 0.0009558195366, 1e-06],
     [0.0, 0.0, 0.01261859507, 0.02, 0.01809036093, 0.01309086093, 0.006911139073, 0.001911639073, 2e-06],
     None),
    ("WarmupCosineLR", {"total_num_steps": 7, "warmup_num_steps": 2, "warmup_min_ratio": 0.1, "cos_min_ratio": 0.2, "warmup_type": "linear"},
     [0.0, 0.001, 0.0055, 0.009236067977, 0.007236067977, 0.004763932023, 0.002763932023, 0.002, 0.002],
     [0.0, 0.002, 0.011, 0.01847213595, 0.01447213595, 0.009527864045, 0.005527864045, 0.004, 0.004],
     None),
    ("LRRangeTest", {},
     [0.001, 0.0010005, 0.001001, 0.0010015, 0.001002, 0.0010025, 0.001003, 0.0010035, 0.001004], None, None),
    ("LRRangeTest", {"lr_range_test_min_lr": [0.01, 0.02], "lr_range_test_step_size": 3, "lr_range_test_step_rate": 2.0, "lr_range_test_staircase": True},
     [0.01, 0.01, 0.01, 0.03, 0.03, 0.03, 0.05, 0.05, 0.05], [0.02, 0.02, 0.02, 0.06, 0.06, 0.06, 0.1, 0.1, 0.1], None),
    ("LRRangeTest", {"lr_range_test_min_lr": 0.5, "lr_range_test_step_size": 2},
     [0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5], None, None),
    ("OneCycle", {"cycle_min_lr": 0.01, "cycle_max_lr": 0.1, "cycle_first_step_size": 3},
     [0.01, 0.04, 0.07, 0.1, 0.07, 0.04, 0.01, 0.01, 0.01], None, [0.8, 0.8666666667, 0.8333333333, 0.8, 0.8333333333, 0.8666666667, 0.9, 0.9, 0.9]),
    ("OneCycle",
     {"cycle_min_lr": 0.01, "cycle_max_lr": 0.1, "cycle_first_step_size": 2, "cycle_second_step_size": 3, "decay_step_size": 2,
      "decay_lr_rate": 0.5, "decay_mom_rate": 0.1, "cycle_min_mom": 0.7, "cycle_max_mom": 0.95},
     [0.01, 0.055, 0.1, 0.07, 0.04, 0.01, 0.008, 0.006666666667, 0.005714285714],
     None, [0.7, 0.825, 0.7, 0.7833333333, 0.8666666667, 0.95, 0.9975, 1.045, 1.0925]),
    ("OneCycle", {"cycle_min_lr": 0.01, "cycle_max_lr": 0.1, "cycle_momentum": False},
     [0.01, 0.010045, 0.01009, 0.010135, 0.01018, 0.010225, 0.01027, 0.010315, 0.01036], None, None),
    ("OneCycle", {"cycle_min_lr": [0.01, 0.02], "cycle_max_lr": 0.1, "cycle_first_step_size": 4, "cycle_second_step_size": 3, "cycle_first_stair_count": 2},
     [0.01, 0.01, 0.055, 0.055, 0.1, 0.055, 0.01, 0.01, 0.01],
     [0.02, 0.02, 0.06, 0.06, 0.1, 0.06, 0.02, 0.02, 0.02],
     [0.8, 0.9, 0.85, 0.85, 0.8, 0.85, 0.9, 0.9, 0.9]),
    ("WarmupCosineLR", {"total_num_steps": 2, "warmup_num_steps": 3, "warmup_type": "other"},
     [0.0, 0.0, 0.006309297536, 0.01, 1e-06, 1e-06, 1e-06, 1e-06, 1e-06], [0.0, 0.0, 0.01261859507, 0.02, 2e-06, 2e-06, 2e-06, 2e-06, 2e-06], None),
]


# Regression: warm-ups of DeepSpeed's configuration began one update early, and its Adam decayed weights by 0.01 where nothing was
# said.
@pytest.mark.parametrize("kind, given, first, second, betas", RECORDED)
def test_schedules_of_deepspeed(kind, given, first, second, betas):
    parameters = [torch.nn.Parameter(torch.zeros(2)) for _ in range(2)]
    optimizer = torch.optim.AdamW([{"params": parameters[:1]}, {"params": parameters[1:], "lr": 0.02}], lr=0.01)
    schedule = ConfiguredSchedule(optimizer, kind, given)
    found, kept = [], None
    for number in range(len(first)):
        group, other = optimizer.param_groups
        found.append((group["lr"], other["lr"], group["betas"][0]))
        assert schedule.get_last_lr() == [group["lr"], other["lr"]]
        optimizer.step()
        schedule.step()
        if number == 3:
            kept = schedule.state_dict()
    assert found == [pytest.approx(row, rel=1e-8) for row in zip(first, second or first, betas or [0.9] * len(first))]
    assert kept == {"last_batch_iteration": 3}
    schedule.load_state_dict(kept)
    schedule.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(first[5], rel=1e-8)


@pytest.mark.parametrize("kind, given, error, told", [
    ("Cosine", {}, NotImplementedError, "expected LRRangeTest, OneCycle, WarmupCosineLR, WarmupDecayLR, WarmupLR"),
    ("WarmupLR", {"warmup_steps": 3}, ValueError, "'warmup_steps', which WarmupLR does not"), ("OneCycle", {}, ValueError, "cycle_min_lr .* missing"),
    ("WarmupDecayLR", {"total_num_steps": "auto"}, ValueError, "total_num_steps .* or that of DummyScheduler"),
    ("WarmupLR", {"warmup_max_lr": [0.1, 0.2]}, ValueError, "warmup_max_lr .* has 2 values; expected 1"),
    ("LRRangeTest", {"lr_range_test_step_size": 0}, ValueError, "step_size=0 .* at least 1")])
def test_schedules_that_cannot_be_made(kind, given, error, told):
    with pytest.raises(error, match=told):
        schedule = ConfiguredSchedule(torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=0.01), kind, given)
        schedule.optimizer.step()
        schedule.step()


def test_a_cycle_without_betas_leaves_momentum(caplog):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=0.01, momentum=0.5)
    ConfiguredSchedule(optimizer, "OneCycle", {"cycle_min_lr": 0.1, "cycle_max_lr": 0.2})
    assert optimizer.param_groups[0]["momentum"] == 0.5 and "SGD has no betas" in caplog.text


def test_optimizers_of_deepspeed():
    parameters = [torch.nn.Parameter(torch.ones(3))]
    for kind, given, made, settings in (
            ("Adam", {"bias_correction": True}, torch.optim.AdamW, {"weight_decay": 0.0}), ("adam", {"adam_w_mode": False}, torch.optim.Adam, {}),
            ("Adam", {"torch_adam": True}, torch.optim.AdamW, {"weight_decay": 0.01}),
            ("Adagrad", {"eps": 1e-8}, torch.optim.Adagrad, {"lr": 0.01, "eps": 1e-8}),
            ("RMSprop", {"lr": 0.5}, torch.optim.RMSprop, {"lr": 0.5}), ("SGD", {"lr": 0.5, "momentum": 0.9}, torch.optim.SGD, {"momentum": 0.9}),
            ("Lion", {"betas": [0.9, 0.99]}, Lion, {"lr": 1e-3, "betas": (0.9, 0.99), "weight_decay": 0.0})):
        optimizer = make(kind, parameters, given)
        assert type(optimizer) is made and settings.items() <= optimizer.param_groups[0].items()
    for kind, given, error, told in (
            ("OneBitAdam", {}, NotImplementedError, "one bit"),
            ("MuSGD", {}, NotImplementedError, "mup"),
            ("Adamant", {}, NotImplementedError, "a class of torch.optim"), ("lr_scheduler", {}, NotImplementedError, "a class of torch.optim"),
            ("Adam", {"max_grad_norm": 1.0}, ValueError, "gradient_clipping"), ("Adam", {"bias_correction": False}, NotImplementedError, "expected True")):
        with pytest.raises(error, match=told):
            make(kind, parameters, given)


def test_lamb_is_as_long_as_the_parameter():
    parameter = torch.nn.Parameter(torch.tensor([3.0, 4.0], dtype=torch.float64))
    optimizer = make("Lamb", [parameter], {"lr": 0.1, "betas": [0.8, 0.9], "eps": 0.5, "weight_decay": 0.2, "max_coeff": 100.0})
    first, second, expected = [0.0, 0.0], [0.0, 0.0], [3.0, 4.0]
    for step, gradient in enumerate(([1.0, -2.0], [0.5, 0.5], [0.0, 1.0]), 1):
        parameter.grad = torch.tensor(gradient, dtype=torch.float64)
        optimizer.step()
        first = [0.8 * one + 0.2 * value for one, value in zip(first, gradient)]
        second = [0.9 * one + 0.1 * value * value for one, value in zip(second, gradient)]
        update = [one / (math.sqrt(two) + 0.5) + 0.2 * value for one, two, value in zip(first, second, expected)]
        size = 0.1 * math.sqrt(1 - 0.9 ** step) / (1 - 0.8 ** step) * math.hypot(*expected) / math.hypot(*update)
        expected = [value - size * part for value, part in zip(expected, update)]
        assert parameter.tolist() == pytest.approx(expected, rel=1e-12)
    # A length of 0 is no factor, and max_coeff bounds it.
    bounded, zero = torch.nn.Parameter(torch.full((2,), 1e6)), torch.nn.Parameter(torch.zeros(2))
    for one in (bounded, zero):
        one.grad = torch.ones(2)
    make("LAMB", [bounded, zero], {"lr": 1.0, "bias_correction": False, "betas": [0.0, 0.0]}).step()
    assert bounded.tolist() == pytest.approx([1e6 - 10] * 2) and zero.tolist() == pytest.approx([-1] * 2)


def test_muon_updates_matrices_and_adamw_the_rest():
    def parameters():
        torch.manual_seed(3)
        return [torch.nn.Parameter(torch.randn(4, 3)), torch.nn.Parameter(torch.randn(3)), torch.nn.Parameter(torch.randn(5, 2))]

    ours, theirs = parameters(), parameters()
    ours[2].use_muon = False
    optimizer = make("Muon", ours, {"lr": 0.1, "weight_decay": 0.01, "muon_lr": 0.3})
    expected = [torch.optim.Muon(theirs[:1], lr=0.3, weight_decay=0.01), torch.optim.AdamW(theirs[1:], lr=0.1, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.01)]
    for step in range(4):
        if step == 2:  # goes on in another one
            saved, optimizer = optimizer.state_dict(), make("muon", ours, {"lr": 9.0})
            optimizer.load_state_dict(saved)
        for one, other in zip(ours, theirs):
            one.grad = torch.randn(one.shape)
            other.grad = one.grad.clone()
        optimizer.step()
        for other in expected:
            other.step()
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs))


@pytest.mark.parametrize("kind", ["Lamb", "Muon"])
def test_optimizers_of_whole_parameters_train_under_stage_0_and_are_refused_where_parameters_are_cut(ranks, kind):
    for printed in ranks(f"""
        import torch
        from accel import Accelerator, AcceleratorState, DeepSpeedPlugin
        from accel.utils import DummyOptim

        for stage in (0, 2):
            AcceleratorState._reset_state(True)
            plugin = DeepSpeedPlugin(hf_ds_config={{"optimizer": {{"type": {kind!r}, "params": {{"lr": 0.1}}}}, "zero_optimization": {{"stage": stage}},
                                                   "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1}})
            accelerator = Accelerator(cpu=True, deepspeed_plugin=plugin)
            torch.manual_seed(1)
            model = torch.nn.Sequential(torch.nn.Embedding(5, 4), torch.nn.Linear(4, 3))
            try:
                model, optimizer = accelerator.prepare(model, DummyOptim(model.parameters()))
            except NotImplementedError as error:
                print("expected zero_optimization.stage 0" in str(error), stage)
                continue
            losses = []
            for _ in range(4):
                loss = model(torch.tensor([accelerator.process_index, 2])).square().mean()
                accelerator.backward(loss)
                losses.append(float(accelerator.reduce(loss.detach(), "mean")))
            print(losses[-1] < losses[0], stage)
            accelerator.free_memory()
    """):
        assert printed == "True 0\nTrue 2\n"


def test_lion_moves_by_the_sign():
    parameter = torch.nn.Parameter(torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64))
    optimizer, momentum, expected = Lion([parameter], lr=0.1, betas=(0.9, 0.5), weight_decay=0.2), [0.0] * 3, [1.0, -2.0, 3.0]
    for gradient in ([1.0, -1.0, 0.5], [-20.0, -1.0, 0.1]):
        parameter.grad = torch.tensor(gradient, dtype=torch.float64)
        optimizer.step()
        for place, value in enumerate(gradient):
            direction = math.copysign(1.0, 0.9 * momentum[place] + 0.1 * value)
            expected[place] = expected[place] * (1 - 0.1 * 0.2) - 0.1 * direction
            momentum[place] = 0.5 * momentum[place] + 0.5 * value
    assert parameter.tolist() == pytest.approx(expected, rel=1e-12)


def trained(accelerator, model, optimizer, calls_step):
    """Weights and norms after four micro-batches in windows of two."""
    norms = []
    for number in range(4):
        with accelerator.accumulate(model):
            accelerator.backward(model(torch.full((2, 4), 1.0 + number)).square().mean())
            if accelerator.sync_gradients:
                norms.append(accelerator.clip_grad_norm_(model.parameters(), 1e-9))
            if calls_step:
                optimizer.step()
                optimizer.zero_grad()
    return [parameter.tolist() for parameter in model.parameters()], norms


# Regression: a program of torch under DeepSpeed's settings that leaves `optimizer.step()` to `backward()`, as Accelerate's may,
# did not train, and `clip_grad_norm_()` clipped by its own argument.
def test_backward_updates_as_the_engine_does():
    """optimizer.step() and zero_grad() may be left out, and change nothing; clipping is that of the configuration."""
    found = []
    for calls_step in (False, True):
        settings = {"gradient_accumulation_steps": 2, "gradient_clipping": 0.5, "train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 1}}
        accelerator = Accelerator(cpu=True, deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=settings))
        model, _ = objects()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
        found.append(trained(accelerator, model, optimizer, calls_step))
        assert optimizer.param_groups[0]["lr"] == 0.1 and isinstance(optimizer.optimizer, torch.optim.SGD) and not optimizer.step_was_skipped
        schedule.step()  # the program's own
        assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01)
        with pytest.raises(NotImplementedError, match="gradient_clipping"):
            accelerator.clip_grad_value_(model.parameters(), 1.0)
        accelerator.free_memory()
        AcceleratorState._reset_state(True)
    assert found[0] == found[1] and all(norm > 1 for norm in found[0][1])

    model, _ = objects()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for window in ((1.0, 2.0), (3.0, 4.0)):
        for value in window:
            (model(torch.full((2, 4), value)).square().mean() / 2).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
    assert found[0][0] == [pytest.approx(part, rel=1e-5) if isinstance(part[0], float) else [pytest.approx(part[0], rel=1e-5)]
                           for part in (parameter.tolist() for parameter in model.parameters())]


def test_backward_sum_updates_too():
    settings = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 1}}
    accelerator = Accelerator(cpu=True, deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=settings))
    model, _ = objects()
    model, _ = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    before = model.weight.tolist()
    accelerator.backward_sum(model(torch.ones(2, 4)).square().sum(), 2)
    assert model.weight.tolist() != before and model.weight.grad is None
