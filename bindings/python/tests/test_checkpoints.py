# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of the package: projects, hooks, generators of Python, files of torch."""

import os
import random

import accel
import pytest
from accel import Accelerator, ProjectConfiguration, nn, optim
from accel.checkpoint import load_custom_state, save_custom_state


def ones_in(model):
    model.load_state_dict({name: accel.ones(*tensor.shape) for name, tensor in model.state_dict().items()})


def test_generators_of_python_and_numpy_are_restored(accelerator, tmp_path):
    numpy = pytest.importorskip("numpy")
    random.seed(3)
    numpy.random.seed(3)
    accelerator.save_state(tmp_path / "state")
    drawn = [random.random(), numpy.random.rand(), accel.rand(1).item()]
    accelerator.load_state(tmp_path / "state")
    assert [random.random(), numpy.random.rand(), accel.rand(1).item()] == drawn
    saved = accel.load(tmp_path / "state/random_states_0.pkl")
    assert {"step", "random_state", "numpy_random_seed", "torch_manual_seed"} <= saved.keys()
    assert saved["random_state"][0] == 3 and saved["numpy_random_seed"][0] == "MT19937"


def test_weights_that_a_hook_takes_out_are_its_own_affair(accelerator, tmp_path):
    first, second = accelerator.prepare(nn.Linear(2, 2), nn.Linear(3, 3))
    seen = []

    def take_first(models, weights, output_dir):
        seen.append([len(models), len(weights)])
        del weights[0]

    def skip_first(models, input_dir):
        models.pop(0)

    accelerator.register_save_state_pre_hook(take_first)
    accelerator.register_save_state_pre_hook(lambda models, weights, folder: seen.append([models == [second], len(weights)]))
    accelerator.register_load_state_pre_hook(skip_first)
    accelerator.save_state(tmp_path / "state")
    assert seen == [[2, 2], [True, 1]]
    assert sorted(name for name in os.listdir(tmp_path / "state") if "model" in name) == ["model_1.safetensors"]  # it keeps its number
    before = second.weight.tolist()
    ones_in(first)
    ones_in(second)
    accelerator.load_state(tmp_path / "state")
    assert first.weight.sum().item() == 4 and second.weight.tolist() == before


def test_what_a_hook_raises_ends_the_save(accelerator, tmp_path):
    accelerator.prepare(nn.Linear(2, 2))

    def fail(models, weights, output_dir):
        raise LookupError("the hook's own")

    hook = accelerator.register_save_state_pre_hook(fail)
    with pytest.raises(LookupError, match="the hook's own"):
        accelerator.save_state(tmp_path / "state")
    assert os.listdir(tmp_path) == [] and accelerator.save_iteration == 0
    hook.remove()
    hook.remove()
    accelerator.save_state(tmp_path / "state")
    assert accelerator.save_iteration == 1


def test_projects(tmp_path):
    accel.PartialState._reset_state()
    project = ProjectConfiguration(project_dir=str(tmp_path), automatic_checkpoint_naming=True, total_limit=2)
    accelerator = Accelerator(cpu=True, project_config=project)
    model = accelerator.prepare(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="there is no checkpoint"):
        accelerator.load_state()
    folders = [accelerator.save_state() for _ in range(3)]
    assert folders[-1] == str(tmp_path / "checkpoints/checkpoint_2") and sorted(os.listdir(tmp_path / "checkpoints")) == ["checkpoint_1", "checkpoint_2"]
    project.iteration = 2
    with pytest.raises(ValueError, match="already exists"):
        accelerator.save_state()
    ones_in(model)
    accelerator.load_state(folders[1])
    assert model.weight.sum().item() != 4 and project.iteration == 3
    with pytest.raises(TypeError, match="map_location='cuda:0'"):
        accelerator.load_state(map_location="cuda:0")
    with pytest.raises(TypeError, match="no setting 'slow'"):
        accelerator.save_state(slow=True)


def test_files_of_torch_without_torch(accelerator, tmp_path):
    model = accelerator.prepare(nn.Linear(2, 2))
    accelerator.save_model(model, tmp_path / "bin", safe_serialization=False)
    assert os.listdir(tmp_path / "bin") == ["pytorch_model.bin"]
    weights = accel.utils.load_state_dict(tmp_path / "bin")
    assert weights.keys() == {"weight", "bias"}
    accelerator.save_model(model, tmp_path / "shards", max_shard_size=16)
    assert "model.safetensors.index.json" in os.listdir(tmp_path / "shards")
    assert accel.utils.load_state_dict(tmp_path / "shards").keys() == {"weight", "bias"}
    tree = {"a": [1, 2.5, None, True], "b": ("text", b"bytes"), 3: {"t": accel.ones(2)}}
    accelerator.save(tree, tmp_path / "tree.bin", safe_serialization=False)
    read = accel.load(tmp_path / "tree.bin")
    assert read["a"] == tree["a"] and read["b"] == tree["b"] and read[3]["t"].tolist() == [1, 1]
    with pytest.raises(ValueError, match="max_shard_size|'many'"):
        accelerator.save_model(model, tmp_path / "shards", max_shard_size="many")
    accelerator.save_state(tmp_path / "state", safe_serialization=False)
    assert {"pytorch_model.bin", "accel_manifest.json"} <= set(os.listdir(tmp_path / "state"))
    accelerator.load_state(tmp_path / "state")


def test_asynchronous_saves(tmp_path):
    project = ProjectConfiguration(project_dir=str(tmp_path), automatic_checkpoint_naming=True, total_limit=2)
    accelerator = Accelerator(cpu=True, project_config=project)
    model = accelerator.prepare(nn.Linear(2, 2))
    folders = [accelerator.save_state(asynchronous=True, when_busy="wait") for _ in range(3)]
    before = model.weight.tolist()
    ones_in(model)
    accelerator.wait_for_checkpoint()
    assert accelerator.checkpoint_progress() == (0, 0)
    assert [os.path.basename(folder) for folder in folders] == ["checkpoint_0", "checkpoint_1", "checkpoint_2"]
    assert sorted(os.listdir(tmp_path / "checkpoints")) == ["checkpoint_1", "checkpoint_2"]
    accelerator.load_state()
    assert model.weight.tolist() == before
    with pytest.raises(ValueError, match="when_busy='never'"):
        accelerator.save_state(asynchronous=True, when_busy="never")


class Steps:
    def __init__(self, steps):
        self.steps = steps

    def state_dict(self):
        return {"steps": self.steps, "nested": {"list": [1, (2, 3)]}}

    def load_state_dict(self, state):
        self.steps, self.nested = state["steps"], state["nested"]


def test_custom_objects_keep_their_numbers(accelerator, tmp_path):
    one, two = Steps(1), Steps(2)
    accelerator.register_for_checkpointing(one, two)
    accelerator.prepare(nn.Linear(1, 1))
    accelerator.save_state(tmp_path / "state")
    one.steps = two.steps = 0
    accelerator.free_memory()  # what is registered stays
    accelerator.prepare(nn.Linear(1, 1))
    accelerator.load_state(tmp_path / "state")
    assert (one.steps, two.steps) == (1, 2) and two.nested == {"list": [1, (2, 3)]}
    accelerator.register_for_checkpointing(Steps(3))
    with pytest.raises(RuntimeError):
        accelerator.load_state(tmp_path / "state")
    save_custom_state(Steps(7), tmp_path, 4)
    load_custom_state(one, tmp_path, 4)
    assert one.steps == 7


def test_optimizers_that_are_missing_are_an_error(accelerator, tmp_path):
    model = nn.Linear(2, 2)
    accelerator.prepare(model)
    accelerator.save_state(tmp_path / "state")
    accelerator.prepare(optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises((RuntimeError, ValueError), match="optimizer"):
        accelerator.load_state(tmp_path / "state")


# Regression: a load left zeros where gradients were and the checkpoint has none, which momentum turned into updates.
def test_gradients_from_before_a_load_are_dropped(tmp_path):
    """A parameter without a gradient is not updated; momentum would move one whose gradient is zeros."""
    accelerator = accel.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = nn.Linear(2, 1)
    model, optimizer = accelerator.prepare(model, optim.SGD(model.parameters(), lr=0.1, momentum=0.9))

    def micro_batch(value):
        with accelerator.accumulate(model):
            accelerator.backward(model(accel.tensor([[value, value]])).sum())
            optimizer.step()
            optimizer.zero_grad()

    micro_batch(1.0)
    accelerator.save_state(tmp_path / "open")
    micro_batch(2.0)
    accelerator.save_state(tmp_path / "between")
    accelerator.load_state(tmp_path / "open")
    assert model.weight.grad.tolist() == [[0.5, 0.5]]
    accelerator.load_state(tmp_path / "between")
    assert model.weight.grad is None and model.bias.grad is None
    accelerator.load_state(tmp_path / "open")
    assert model.weight.grad.tolist() == [[0.5, 0.5]]
    accelerator.free_memory()


IN_A_WINDOW = """
    import accel

    accelerator = accel.Accelerator(cpu=True, gradient_accumulation_steps=2, fsdp_plugin={plugin})
    model = accel.nn.Linear(4, 3)
    model, optimizer = accelerator.prepare(model, accel.optim.SGD(model.parameters(), lr=0.1))

    def micro_batch(value):
        with accelerator.accumulate(model):
            accelerator.backward(model(accel.tensor([[value] * 4])).sum())
            optimizer.step()
            optimizer.zero_grad()

    def weights():
        return {{name: value.reshape(-1).tolist() for name, value in accelerator.get_state_dict(model).items()}}
"""
SHARDED = "accel.FullyShardedDataParallelPlugin()"


# Regression: the open accumulation window of a sharded model could only be loaded by as many ranks, and failed in the middle of
# the load otherwise.
@pytest.mark.parametrize("saves, loads, number", [
    (SHARDED, SHARDED, 3), (SHARDED, None, 1),
    *(pytest.param(*case, marks=pytest.mark.combinations) for case in ((SHARDED, SHARDED, 2), (SHARDED, SHARDED, 5), (None, SHARDED, 3)))])
def test_windows_that_are_open_are_loaded_by_any_number_of_ranks(ranks, tmp_path, saves, loads, number):
    """The gradients of the ranks that saved count with their mean, whoever is there for the rest of the window."""
    folder = str(tmp_path / "open")
    ranks(IN_A_WINDOW.format(plugin=saves) + f"""
    micro_batch(accelerator.process_index + 1.0)
    accelerator.save_state({folder!r})
    """)
    printed = ranks(IN_A_WINDOW.format(plugin=loads) + f"""
    accelerator.load_state({folder!r})
    before = weights()
    micro_batch(3.0)
    for name, values in weights().items():
        moved = [round(one - other, 5) for one, other in zip(values, before[name])]
        print(name, sorted(set(moved)), len(moved))
    """, number)
    assert printed[0] == "weight [-0.225] 12\nbias [-0.1] 3\n", printed  # by (1.5 + 3) / 2 and by 1, times the rate


def test_merged_weights(tmp_path):
    with pytest.raises(ValueError, match="is not a folder"):
        accel.utils.merge_fsdp_weights(tmp_path / "absent", tmp_path)
    from accel.commands.merge import merge_command, merge_command_parser

    arguments = merge_command_parser().parse_args([str(tmp_path), str(tmp_path / "merged")])
    with pytest.raises(ValueError, match="no parts of a model"):
        merge_command(arguments)
