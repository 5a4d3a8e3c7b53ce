# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of programs of torch, and those of Accelerate itself where it is installed."""

import logging
import os
import random

import pytest

torch = pytest.importorskip("torch", reason="there is no torch")

import accel  # noqa: E402
from accel import ProjectConfiguration  # noqa: E402


class Progress:
    def __init__(self):
        self.epochs, self.seen = 0, torch.zeros(2)

    def state_dict(self):
        return {"epochs": self.epochs, "seen": self.seen}

    def load_state_dict(self, state):
        self.epochs, self.seen = state["epochs"], state["seen"]


def job(package, seed=0):
    """A training of a few steps with an Accelerator of that package."""
    if package is accel:
        accel.PartialState._reset_state()
        accelerator = accel.Accelerator(cpu=True)
    else:
        package.state.AcceleratorState._reset_state(True)
        accelerator = package.Accelerator(cpu=True)
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU(), torch.nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    progress = Progress()
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    accelerator.register_for_checkpointing(progress)
    return accelerator, model, optimizer, scheduler, progress


def train(accelerator, model, optimizer, scheduler, progress, steps=3):
    losses = []
    for _ in range(steps):
        loss = (model(torch.randn(8, 3)) * random.random()).pow(2).mean()
        accelerator.backward(loss)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    progress.epochs += 1
    progress.seen = progress.seen + 1
    return losses


@pytest.mark.parametrize("safe", [True, False])
def test_a_run_continues(safe, tmp_path):
    one = job(accel)
    train(*one)
    one[0].save_state(tmp_path / "state", safe_serialization=safe)
    assert ("model.safetensors" if safe else "pytorch_model.bin") in os.listdir(tmp_path / "state")
    after = train(*one)
    other = job(accel, seed=1)
    other[0].load_state(tmp_path / "state")
    assert train(*other) == after and other[4].epochs == 2 and other[4].seen.tolist() == [2, 2]


@pytest.mark.parametrize("safe", [True, False])
@pytest.mark.parametrize("direction", ["written by accel", "read by accel"])
def test_with_accelerate(safe, direction, tmp_path):
    accelerate = pytest.importorskip("accelerate")
    writer, reader = (accel, accelerate) if direction == "written by accel" else (accelerate, accel)
    one = job(writer)
    train(*one)
    one[0].save_state(str(tmp_path / "state"), safe_serialization=safe)
    after = train(*one)
    other = job(reader, seed=1)
    other[0].load_state(str(tmp_path / "state"))
    assert train(*other) == pytest.approx(after, rel=1e-6)
    assert other[4].epochs == 2 and other[4].seen.tolist() == [2, 2]
    assert other[3].get_last_lr() == pytest.approx(one[3].get_last_lr())


def test_torch_reads_what_is_written(tmp_path):
    one = job(accel)
    train(*one)
    one[0].save_state(tmp_path / "state", safe_serialization=False)
    weights = torch.load(tmp_path / "state/pytorch_model.bin", weights_only=True)
    assert all(torch.equal(weights[name], tensor) for name, tensor in one[1].state_dict().items())
    optimizer = torch.load(tmp_path / "state/optimizer.bin", weights_only=True)
    moments = one[2].state_dict()["state"][0]["exp_avg"]
    assert torch.equal(optimizer["state"][0]["exp_avg"], moments)
    assert torch.load(tmp_path / "state/custom_checkpoint_0.pkl", weights_only=True)["epochs"] == 1


def test_values_as_torch_saves_them(tmp_path):
    accel.PartialState._reset_state()
    accelerator = accel.Accelerator(cpu=True)
    tree = {"t": torch.arange(6).reshape(2, 3).t(), "list": [1, (2.5, None)], "half": torch.ones(2, dtype=torch.bfloat16)}
    accelerator.save(tree, tmp_path / "tree.bin", safe_serialization=False)
    for read in (torch.load(tmp_path / "tree.bin", weights_only=True), accel.load(tmp_path / "tree.bin")):
        assert torch.equal(read["t"], tree["t"]) and read["list"] == tree["list"] and torch.equal(read["half"], tree["half"])
    torch.save(tree, tmp_path / "torch.bin")
    assert torch.equal(accel.load(tmp_path / "torch.bin")["t"], tree["t"])
    accelerator.save(Progress, tmp_path / "class.bin", safe_serialization=False)  # only a pickle holds it
    assert accel.load(tmp_path / "class.bin", weights_only=False) is Progress
    with pytest.raises(accel.errors.Error, match="Progress"):
        accel.load(tmp_path / "class.bin")


def test_hooks_see_weights_of_torch(tmp_path):
    one = job(accel)
    seen = []
    one[0].register_save_state_pre_hook(lambda models, weights, folder: seen.append((models[0] is one[1], type(weights[0]["0.weight"]))))
    one[0].save_state(tmp_path / "state")
    assert seen == [(True, torch.Tensor)]


def test_settings_of_sharding_with_one_process():
    accel.PartialState._reset_state()
    plugin = accel.FullyShardedDataParallelPlugin(min_num_params=10)
    plugin.set_auto_wrap_policy(None)
    accelerator = accel.Accelerator(cpu=True, fsdp_plugin=plugin, project_config=ProjectConfiguration())
    assert plugin.auto_wrap_policy is None and accelerator.num_processes == 1
    with pytest.raises(ValueError, match="'SOME'"):
        accel.FullyShardedDataParallelPlugin(auto_wrap_policy="SOME")


# Regression: a checkpoint of Accelerate could not be loaded where a loader of torch was prepared.
def test_a_folder_of_the_reference_has_no_positions_of_loaders(tmp_path, caplog):
    """What cannot be restored is a warning that names it."""
    def prepared():
        accelerator, *things = job(accel)
        return accelerator, things, accelerator.prepare(torch.utils.data.DataLoader(list(range(4)), batch_size=2))

    accelerator, things, _ = prepared()
    accelerator.save_state(tmp_path / "state")
    kept = {"model.safetensors", "optimizer.bin", "scheduler.bin", "custom_checkpoint_0.pkl", "random_states_0.pkl"}
    for file in (tmp_path / "state").iterdir():
        if file.name not in kept:
            file.unlink()
    expected = {name: tensor.clone() for name, tensor in things[0].state_dict().items()}
    accelerator, things, loader = prepared()
    for parameter in things[0].parameters():
        parameter.data.zero_()
    with caplog.at_level(logging.WARNING):
        accelerator.load_state(tmp_path / "state")
    warned = [record.message for record in caplog.records if "which continues as it is" in record.message]
    assert len(warned) >= 1 and f"'{tmp_path / 'state'}' holds no 'custom_torch_dataloaders'" in warned[0], warned
    assert all(torch.equal(tensor, expected[name]) for name, tensor in things[0].state_dict().items())
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3]]
