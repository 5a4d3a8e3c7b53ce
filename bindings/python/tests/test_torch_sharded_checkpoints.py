# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that Accelerate wrote of sharded models, under FSDP and DeepSpeed: load_state() continues them, on any number of ranks."""

import json
import logging
import pathlib
import shutil
import sys
import types

import pytest

torch = pytest.importorskip("torch", reason="there is no torch")

import accel  # noqa: E402

FIXTURES = pathlib.Path(__file__).resolve().parents[3] / "tests" / "parity" / "fixtures" / "sharded_checkpoints"
CASES = {case["name"]: case for case in json.loads((FIXTURES / "expected.json").read_text())["cases"]}

MODEL = """
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(5, 7)
        self.second = torch.nn.Linear(7, 5)

    def forward(self, x):
        return x + self.second(torch.tanh(self.first(x)))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(), Block()])
        self.shift = torch.nn.Parameter(torch.full((5,), 7.0), requires_grad=False)
        self.register_buffer("scale", torch.full((5,), 7.0))

    def forward(self, x):
        x = x * self.scale + self.shift
        for block in self.blocks:
            x = block(x)
        return x


def make(given):
    model = Net()
    model.shift.requires_grad_(given.get("trains_shift", False))
    named = [(name, one) for name, one in model.named_parameters() if one.requires_grad or given.get("fsdp_version") == 2]
    if given["groups"] == 1:
        groups = [one for _, one in named]
    else:
        groups = [{"params": [one for name, one in named if name.endswith("weight")]},
                  {"params": [one for name, one in named if not name.endswith("weight")], "lr": 0.4}]
    optimizer = torch.optim.AdamW(groups, lr=0.5)
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)


def resume(accelerator, case, folder):
    given, expected = case["input"], case["expected"]
    models, optimizers, schedulers = [], [], []
    for _ in range(given["models"]):
        model, optimizer, scheduler = accelerator.prepare(*make(given))
        models.append(model), optimizers.append(optimizer), schedulers.append(scheduler)
    accelerator.load_state(folder)
    tolerance = 5e-3 if given.get("bf16") else 2e-5
    near = lambda tensor, values: torch.allclose(tensor.flatten().float(), torch.tensor(values), tolerance, tolerance)
    for model, optimizer, rates, weights, moments in zip(models, optimizers, expected["rates"], expected["weights"], expected["moments"]):
        assert [group["lr"] for group in optimizer.param_groups] == pytest_approx(rates)
        assert all(near(value, weights[name]) for name, value in accelerator.get_state_dict(model).items())
        if accelerator.num_processes == 1:
            inner = accelerator.unwrap_model(model)
            for name, moment in moments.items():
                state = optimizer.state[inner.get_parameter(name)]
                assert state["step"] == 3 and near(state["exp_avg"], moment["exp_avg"]) and near(state["exp_avg_sq"], moment["exp_avg_sq"]), name
    for losses in expected["losses"]:
        for model, optimizer, expected_loss in zip(models, optimizers, losses):
            loss = model(torch.tensor(given["inputs"])).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            assert abs(loss.item() - expected_loss) < tolerance
    for model, weights in zip(models, expected["weights_after"]):
        assert all(near(value, weights[name]) for name, value in accelerator.get_state_dict(model).items())
"""


def folder_of(name, tmp_path):
    folder = tmp_path / name
    shutil.copytree(FIXTURES / name, folder)
    for path in FIXTURES.glob("random_states_*.pkl"):
        shutil.copy(path, folder)
    return folder


def here(name, folder):
    accel.PartialState._reset_state()
    program = {"torch": torch, "pytest_approx": lambda values: pytest.approx(values)}
    exec(MODEL, program)
    program["resume"](accel.Accelerator(cpu=True), CASES[name], folder)


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("fsdp1_local", "stateful_loader")])
def test_one_process_continues(name, tmp_path):
    here(name, folder_of(name, tmp_path))


@pytest.mark.parametrize("name", ["fsdp2_full", "fsdp2_sharded", "fsdp1_sharded", "deepspeed_3"])
def test_sharded_ranks_continue(name, ranks, tmp_path):
    folder = folder_of(name, tmp_path)
    ranks(f"""
import json, pathlib
import torch
from accel import Accelerator, FullyShardedDataParallelPlugin
class pytest_approx(list):
    __eq__ = lambda self, other: all(abs(one - value) < 1e-9 for one, value in zip(self, other))
{MODEL}
case = json.loads({json.dumps(CASES[name])!r})
plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="TRANSFORMER_BASED_WRAP", transformer_cls_names_to_wrap=["Block"])
resume(Accelerator(cpu=True, fsdp_plugin=plugin), case, {str(folder)!r})
""")


def test_files_of_ranks_are_refused_by_their_name(tmp_path):
    with pytest.raises(accel.errors.Error, match=r"pytorch_model_fsdp_rank[01]\.bin.*FULL_STATE_DICT or SHARDED_STATE_DICT"):
        here("fsdp1_local", folder_of("fsdp1_local", tmp_path))


def test_a_stateful_loader_goes_on(tmp_path, caplog):
    pytest.importorskip("torchdata.stateful_dataloader")
    folder, case = folder_of("stateful_loader", tmp_path), CASES["stateful_loader"]

    def resumed(**settings):
        accel.PartialState._reset_state()
        program = {"torch": torch}
        exec(MODEL, program)
        accelerator = accel.Accelerator(cpu=True, **settings)
        accelerator.prepare(*program["make"](case["input"]))
        loader = accelerator.prepare(torch.utils.data.DataLoader(torch.arange(12), batch_size=2, shuffle=True))
        accelerator.load_state(folder)
        return [batch.tolist() for batch in loader]

    with caplog.at_level(logging.WARNING):
        assert resumed(dataloader_config=accel.DataLoaderConfiguration(use_stateful_dataloader=True)) == case["expected"]["batches"]
        assert "dl_state_dict.bin" not in caplog.text
        assert len(resumed()) == 6
    assert "dl_state_dict.bin is the position of loader 0, which is not restored" in caplog.text and "begins its epoch again" in caplog.text


class Trap:
    """A data set that runs code when a pickle of it is read."""

    def __reduce__(self):
        return exec, ("raise SystemExit('code of the file was run')",)


def test_a_seedable_sampler_takes_the_seed_and_the_epoch_of_a_file(tmp_path, caplog, monkeypatch):
    module = types.ModuleType("accelerate.data_loader")  # the file names Accelerate's class
    kind = type("SeedableRandomSampler", (torch.utils.data.RandomSampler,), {"__module__": module.__name__})
    module.SeedableRandomSampler = kind
    folder = pathlib.Path(folder_of("stateful_loader", tmp_path))
    (folder / "dl_state_dict.bin").unlink()
    given = kind(range(12), generator=torch.Generator().manual_seed(4))
    given.initial_seed, given.epoch, given.data_source = 1234, 3, Trap()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "accelerate", types.ModuleType("accelerate"))
        patch.setitem(sys.modules, module.__name__, module)
        torch.save(given, folder / "sampler.bin")

    def resumed(**settings):
        accel.PartialState._reset_state()
        program = {"torch": torch}
        exec(MODEL, program)
        accelerator = accel.Accelerator(cpu=True, dataloader_config=accel.DataLoaderConfiguration(**settings))
        accelerator.prepare(*program["make"](CASES["stateful_loader"]["input"]))
        loader = accelerator.prepare(torch.utils.data.DataLoader(torch.arange(12), batch_size=2, shuffle=True))
        accelerator.load_state(folder)
        return [[number for batch in loader for number in batch.tolist()] for epoch in range(2)]

    expected = [torch.randperm(12, generator=torch.Generator().manual_seed(1234 + epoch)).tolist() for epoch in (3, 4)]
    with caplog.at_level(logging.WARNING):
        assert resumed(use_seedable_sampler=True) == expected
        assert "sampler.bin" not in caplog.text
        resumed()
        assert "sampler.bin is the position of loader 0, which is not restored" in caplog.text and "use_seedable_sampler=True" in caplog.text
        caplog.clear()
        torch.save({"epoch": 3}, folder / "sampler.bin")
        resumed(use_seedable_sampler=True)
        assert "holds a dict without initial_seed and epoch; expected a SeedableRandomSampler" in caplog.text
        caplog.clear()
        (folder / "sampler.bin").write_bytes(b"no archive")
        resumed(use_seedable_sampler=True)
        assert "BadZipFile" in caplog.text


@pytest.mark.parametrize("kind, first", [("FULL_STATE_DICT", 0), ("FULL_STATE_DICT", 1), ("SHARDED_STATE_DICT", 1)])
def test_states_that_one_rank_alone_has_are_named_by_all_ranks(ranks, tmp_path, kind, first):
    for number, printed in enumerate(ranks(f"""
import accel, os, torch
from accel.utils import save_fsdp_optimizer
plugin = accel.FullyShardedDataParallelPlugin(state_dict_type={kind!r})
accelerator = accel.Accelerator(cpu=True, fsdp_plugin=plugin)
model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Linear(6, 2))
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.1))
if accelerator.process_index == {first}:  # a step outside of the job
    for parameter in list(model.parameters())[1:]:
        parameter.grad = torch.ones_like(parameter)
    optimizer.optimizer.step()
for save in (accelerator.save_state, lambda folder: save_fsdp_optimizer(plugin, accelerator, optimizer, model, folder)):
    try:
        save({str(tmp_path / "saved")!r})
    except RuntimeError as error:
        print(type(error).__name__, error)
optimizer.zero_grad()
accelerator.backward(model(torch.ones(2, 4)).sum())
optimizer.step()
try:
    accelerator.save_state({str(tmp_path / "saved")!r})
except RuntimeError as error:
    print(type(error).__name__, error)
""", 2, ACCEL_TIMEOUT_MS=30000)):
        lines = printed.splitlines()
        # A step on all ranks makes the missing states.
        assert len(lines) == 2 and lines[0].startswith("StateError") and "'state.1.exp_avg'" in lines[0], (number, printed)
        assert f"the optimizer of rank {1 - first} has no" in lines[0] and "let all ranks step" in lines[0]
        assert "exp_avg'" in lines[1] and f"the optimizer of rank {1 - first} has no" in lines[1]
    assert (tmp_path / "saved").is_dir()
