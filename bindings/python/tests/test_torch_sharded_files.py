# SPDX-License-Identifier: Apache-2.0
"""The files of FSDP of this library's own models: torch.distributed.checkpoint and torch.load() read them, and what torch wrote is loaded."""

import pytest

torch = pytest.importorskip("torch", reason="there is no torch")
from torch.distributed import checkpoint as torch_checkpoint  # noqa: E402
from torch.distributed.checkpoint import default_planner, state_dict_loader  # noqa: E402

TRAINING = """
    import accel
    from accel.utils import load_fsdp_model, load_fsdp_optimizer, save_fsdp_model, save_fsdp_optimizer

    plugin = accel.FullyShardedDataParallelPlugin(state_dict_type={kind!r})
    accelerator = accel.Accelerator(cpu=True, fsdp_plugin=plugin)
    accel.set_seed(3)
    model = accel.nn.Sequential(accel.nn.Linear(4, 5), accel.nn.Linear(5, 3))
    model, optimizer = accelerator.prepare(model, accel.optim.AdamW(model.parameters(), lr=0.1, betas=(0.8, 0.9)))

    def train(steps):
        for _ in range(steps):
            loss = model(accel.tensor([[1.0, 2.0, 3.0, 4.0]] * 2)).sum()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()

    def shown():
        return {{name: [round(one, 5) for one in value.reshape(-1).tolist()] for name, value in accelerator.get_state_dict(model).items()}}
"""


def read(place, key):
    if place.is_file():
        return torch.load(place, weights_only=True)
    found = {}
    state_dict_loader._load_state_dict(found, storage_reader=torch_checkpoint.FileSystemReader(place),
                                       planner=default_planner._EmptyStateDictLoadPlanner(), no_dist=True)
    return found[key]


@pytest.mark.parametrize("kind, model, optimizer", [("FULL_STATE_DICT", "pytorch_model_fsdp.bin", "optimizer.bin"),
                                                    ("SHARDED_STATE_DICT", "pytorch_model_fsdp_0", "optimizer_0")])
def test_torch_reads_what_the_ranks_wrote(ranks, tmp_path, kind, model, optimizer):
    printed = ranks(TRAINING.format(kind=kind) + f"""
    train(2)
    save_fsdp_model(plugin, accelerator, model, {str(tmp_path)!r})
    save_fsdp_optimizer(plugin, accelerator, optimizer, model, {str(tmp_path)!r})
    weights = shown()
    if accelerator.is_main_process:
        print(weights)
    """, 3)
    weights = read(tmp_path / model, "model")
    assert {name: [round(one, 5) for one in value.reshape(-1).tolist()] for name, value in weights.items()} == eval(printed[0])
    state = read(tmp_path / optimizer, "optimizer")
    group = state["param_groups"][0]
    assert group["params"] == ["0.weight", "0.bias", "1.weight", "1.bias"] and group["lr"] == 0.1 and tuple(group["betas"]) == (0.8, 0.9)
    # torch's own optimizer takes it, by the numbers of the parameters
    own = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Linear(5, 3))
    own.load_state_dict(weights)
    adamw = torch.optim.AdamW(own.parameters(), lr=0.5)
    numbers = {name: number for number, name in enumerate(group["params"])}
    adamw.load_state_dict({"state": {numbers[name]: value for name, value in state["state"].items()}, "param_groups": [{**group, "params": [0, 1, 2, 3]}]})
    own(torch.tensor([[1.0, 2.0, 3.0, 4.0]] * 2)).sum().backward()
    adamw.step()
    ours = ranks(TRAINING.format(kind=kind) + f"""
    load_fsdp_model(plugin, accelerator, model, {str(tmp_path)!r})
    load_fsdp_optimizer(plugin, accelerator, optimizer, model, {str(tmp_path)!r})
    train(1)
    weights = shown()
    if accelerator.is_main_process:
        print(weights)
    """)
    for name, values in eval(ours[0]).items():
        assert values == pytest.approx(own.state_dict()[name].reshape(-1).tolist(), abs=2e-5), name


def test_what_torch_wrote_is_loaded(ranks, tmp_path):
    own = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Linear(5, 3))
    torch_checkpoint.save({"model": own.state_dict(), "epoch": 3}, storage_writer=torch_checkpoint.FileSystemWriter(tmp_path / "any"), no_dist=True)
    printed = ranks(TRAINING.format(kind="SHARDED_STATE_DICT") + f"""
    load_fsdp_model(plugin, accelerator, model, {str(tmp_path / "any")!r})
    weights = shown()
    if accelerator.is_main_process:
        print(weights)
    """)
    for name, values in eval(printed[0]).items():
        assert values == pytest.approx(own.state_dict()[name].reshape(-1).tolist(), abs=1e-5), name


TORCH_TRAINING = """
    import torch
    import accel
    from accel.utils import load_fsdp_model, load_fsdp_optimizer, save_fsdp_model, save_fsdp_optimizer

    plugin = accel.FullyShardedDataParallelPlugin(state_dict_type={kind!r})
    accelerator = accel.Accelerator(cpu=True, fsdp_plugin=plugin)
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 5)
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.1))

    def train():
        accelerator.backward(model(torch.ones(2, 4)).sum())
        optimizer.step()
        optimizer.zero_grad()

    def fails(text, function, *arguments):
        before = [one.detach().clone() for one in model.parameters()]
        try:
            function(*arguments)
        except accel.Error as error:
            assert text in str(error), error
        else:
            raise AssertionError("no error")
        assert all(torch.equal(one, other) for one, other in zip(before, model.parameters()))
        train()  # the ranks are in step

    folder = {folder!r}
    train()
"""


@pytest.mark.parametrize("kind, name", [("FULL_STATE_DICT", "pytorch_model_fsdp.bin"), ("LOCAL_STATE_DICT", "pytorch_model_fsdp_rank1.bin"),
                                        ("SHARDED_STATE_DICT", "pytorch_model_fsdp_0/.metadata")])
# Regression: `save_fsdp_model()` of models of torch wrote in place, and an error of one rank left the ranks out of step.
def test_an_error_of_one_rank_is_that_of_all(ranks, tmp_path, kind, name):
    """For models of torch: nothing is loaded by halves, a former file stays, and the ranks go on together."""
    printed = ranks(TORCH_TRAINING.format(kind=kind, folder=str(tmp_path)) + f"""
    import os, pathlib
    save_fsdp_model(plugin, accelerator, model, folder)
    save_fsdp_optimizer(plugin, accelerator, optimizer, model, folder)
    place = pathlib.Path(folder) / {name!r}
    whole = place.read_bytes()
    train()
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        place.write_bytes(whole[:len(whole) // 2])
    accelerator.wait_for_everyone()
    reader = "rank 1: " if "rank1" in {name!r} else "rank 0: "
    fails(reader, load_fsdp_model, plugin, accelerator, model, folder)
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        place.write_bytes(whole)
    accelerator.wait_for_everyone()
    load_fsdp_model(plugin, accelerator, model, folder)
    load_fsdp_optimizer(plugin, accelerator, optimizer, model, folder)
    fails(reader if "rank1" not in {name!r} else "rank ", load_fsdp_model, plugin, accelerator, model, folder + "/absent")
    fails("rank 0: ", save_fsdp_model, plugin, accelerator, model, place)  # a file, and no folder
    load_fsdp_model(plugin, accelerator, model, folder)
    print(sorted(os.listdir(folder)) if accelerator.is_main_process else "")
    """)
    assert ".part" not in printed[0] and ".former" not in printed[0]


@pytest.mark.parametrize("kind, weights, states", [("FULL_STATE_DICT", "pytorch_model_fsdp.bin", "optimizer.bin"),
                                                   ("SHARDED_STATE_DICT", "pytorch_model_fsdp_0", "optimizer_0")])
def test_names_in_files_are_those_of_the_model_without_wrappers(ranks, tmp_path, kind, weights, states):
    ranks(TORCH_TRAINING.format(kind=kind, folder=str(tmp_path)).replace("model = torch.nn.Linear(4, 5)", """
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    model = torch.nn.Sequential(checkpoint_wrapper(torch.nn.Linear(4, 5)))""") + """
    save_fsdp_model(plugin, accelerator, model, folder)
    save_fsdp_optimizer(plugin, accelerator, optimizer, model, folder)
    kept = accelerator.get_state_dict(model)
    train()
    load_fsdp_model(plugin, accelerator, model, folder)
    load_fsdp_optimizer(plugin, accelerator, optimizer, model, folder)
    loaded = accelerator.get_state_dict(model)
    assert list(loaded) == list(kept) and all(torch.equal(loaded[name], value) for name, value in kept.items())
    """)
    assert sorted(read(tmp_path / weights, "model")) == ["0.bias", "0.weight"]
    assert sorted(read(tmp_path / states, "optimizer")["state"]) == ["0.bias", "0.weight"]
