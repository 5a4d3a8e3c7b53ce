"""Optimizers and schedules that DeepSpeed's configuration names, in programs of torch."""

import math

import pytest

torch = pytest.importorskip("torch", reason="there is no torch")

from accel import Accelerator, DeepSpeedPlugin  # noqa: E402
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


@pytest.mark.parametrize("kind, rate", [("WarmupLR", 1.0), ("WarmupDecayLR", 0.5)])
def test_schedules_of_deepspeed(kind, rate):
    from accel.deepspeed_prepare import _schedule

    given = {"warmup_min_lr": 0.0, "warmup_max_lr": 1.0, "warmup_num_steps": 10, "total_num_steps": 30}
    schedule = _schedule(kind, given)
    assert schedule(0) == 0 and schedule(4) == pytest.approx(math.log(5) / math.log(10)) and schedule(20) == pytest.approx(rate)
    with pytest.raises(NotImplementedError, match="OneCycle"):
        _schedule("OneCycle", given)
