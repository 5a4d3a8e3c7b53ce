# SPDX-License-Identifier: Apache-2.0
"""The functions of accel.utils on torch's tensors and modules."""

import collections
import logging
import random
import types

import pytest

torch = pytest.importorskip("torch")

import accel  # noqa: E402
from accel import utils  # noqa: E402
from test_trees import CASES, check  # noqa: E402

Pair = collections.namedtuple("Pair", "first second")


class Blocks(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(2))
        self.head = torch.nn.Linear(2, 1)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def test_trees_keep_the_kind_of_their_tensors():
    tree = {"pair": Pair(torch.ones(3, 2, dtype=torch.bfloat16), [accel.ones(3)]), "text": "stays"}
    for made in (utils.send_to_device(tree, "cpu"), utils.convert_to_fp32(tree), utils.slice_tensors(tree, slice(0, 2)),
                 utils.recursively_apply(lambda tensor: tensor + 1, tree)):
        assert type(made["pair"]) is Pair and made["text"] == "stays"
        assert isinstance(made["pair"].first, torch.Tensor) and isinstance(made["pair"].second[0], accel.Tensor)
    assert utils.convert_to_fp32(tree)["pair"].first.dtype == torch.float32
    assert utils.find_batch_size(tree) == 3 and utils.find_device(tree) == torch.device("cpu")
    assert utils.ignorant_find_batch_size({"text": 1}) is None and utils.listify(torch.ones(2)) == [1, 1]
    structure = utils.get_data_structure(tree)
    made = utils.initialize_tensors(structure)
    assert made["pair"].first.dtype == torch.bfloat16 and made["pair"].first.shape == (3, 2) and isinstance(made["pair"].second[0], accel.Tensor)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_results_are_the_references(case):
    check(case, lambda values, dtype, shape: torch.tensor(values, dtype=getattr(torch, dtype)).reshape(shape))


def test_concatenate():
    joined = utils.concatenate([{"a": torch.ones(1, 2), "b": (accel.ones(1),)}, {"a": torch.zeros(2, 2), "b": (accel.zeros(1),)}])
    assert joined["a"].tolist() == [[1, 1], [0, 0], [0, 0]] and joined["b"][0].tolist() == [1, 0]
    with pytest.raises(TypeError, match="a str cannot be joined"):
        utils.concatenate([["x"], ["y"]])


def test_devices_are_those_of_torch():
    state = accel.PartialState(cpu=True)
    assert state.device == torch.device("cpu") and torch.ones(1).to(state.device).device == accel.Device("cpu")
    assert accel.ones(1).to(state.device).device == state.device


def test_files(tmp_path, caplog):
    shared = torch.ones(2)
    utils.save({"a": shared, "b": shared}, tmp_path / "w.safetensors", safe_serialization=True)
    assert "Removed shared tensors" in caplog.text
    assert list(utils.load(tmp_path / "w.safetensors")) == ["a"]
    utils.save({"a": shared, "step": 3}, tmp_path / "w.bin")
    assert utils.load(tmp_path / "w.bin")["step"] == 3 and isinstance(utils.load(tmp_path / "w.bin")["a"], torch.Tensor)
    for place in ("cpu", torch.device("cpu"), {"cuda:0": "cpu"}, lambda storage, location: storage):
        assert utils.load(tmp_path / "w.bin", map_location=place)["a"].tolist() == [1, 1]
    with pytest.raises(ValueError, match="'gpu'"):
        utils.load(tmp_path / "w.bin", map_location="gpu")
    torch.save({"a": {1, 2, logging.INFO}, "f": Pair}, tmp_path / "objects.bin")
    with pytest.raises(accel.errors.UnsupportedError, match="nothing of it is executed"):
        utils.load(tmp_path / "objects.bin")


def test_weights_of_files(tmp_path):
    import json

    model, other = Blocks(), Blocks()
    state = model.state_dict()
    first = {name: value for name, value in state.items() if name.startswith("blocks")}
    utils.save(first, tmp_path / "a.safetensors", safe_serialization=True)
    utils.save({name: value for name, value in state.items() if name not in first}, tmp_path / "b.bin")
    index = {name: "a.safetensors" if name in first else "b.bin" for name in state}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    accel.load_checkpoint_in_model(other, tmp_path, strict=True)
    assert all(torch.equal(value, state[name]) for name, value in other.state_dict().items())
    accel.load_checkpoint_in_model(other, tmp_path / "a.safetensors", dtype=torch.bfloat16)
    assert isinstance(utils.load_state_dict(tmp_path / "a.safetensors")["blocks.0.bias"], torch.Tensor)
    with pytest.raises(ValueError, match="expected a map; load_checkpoint_and_dispatch"):
        accel.load_checkpoint_in_model(other, tmp_path, device_map="auto")
    with pytest.raises(ValueError, match="has no pytorch_model.bin, model.safetensors or index"):
        accel.load_checkpoint_in_model(other, tmp_path.parent)
    with pytest.raises(TypeError, match="a dict is not a model"):
        accel.load_checkpoint_in_model({}, tmp_path)


def test_a_seed_is_that_of_all_generators():
    drawn = []
    for _ in range(2):
        accel.set_seed(7)
        drawn.append((torch.rand(1).item(), random.random(), accel.rand(1).item()))
    assert drawn[0] == drawn[1]
    accel.PartialState(cpu=True)
    generator = torch.Generator().manual_seed(3)
    before = generator.get_state()
    accel.synchronize_rng_states(["torch", "generator"], generator)
    assert torch.equal(generator.get_state(), before)


def test_models_inside_of_others():
    model = Blocks()
    assert utils.extract_model_from_parallel(torch.nn.DataParallel(model)) is model
    compiled = torch.compile(torch.nn.DataParallel(model), backend="eager")
    assert utils.extract_model_from_parallel(compiled)._orig_mod is model and utils.is_compiled_module(compiled)
    assert utils.extract_model_from_parallel(compiled, keep_torch_compile=False) is model
    model._original_forward = model.forward
    model.forward = utils.convert_outputs_to_fp32(model.forward)
    assert utils.extract_model_from_parallel(model, keep_fp32_wrapper=False).forward(torch.ones(1, 2)).dtype == torch.float32
    assert isinstance(model.forward, types.MethodType) and [path for path, _ in utils.get_module_children_bottom_up(model, return_fqns=True)][-1] == ""
    assert utils.get_model_tp_size(model) is None and utils.dtype_byte_size(torch.bfloat16) == 2 and utils.dtype_byte_size(torch.bool) == 1 / 8


def test_repeated_blocks_are_compiled_alone():
    model = Blocks()
    compiled = utils.compile_regions(model, backend="eager")
    assert compiled is not model and all(map(utils.is_compiled_module, compiled.blocks)) and utils.is_compiled_module(compiled.head)
    assert utils.has_compiled_regions(compiled) and not utils.has_compiled_regions(model) and not utils.is_compiled_module(compiled)
    assert torch.equal(compiled(torch.ones(1, 2)), model(torch.ones(1, 2)))
    assert utils.extract_model_from_parallel(compiled, keep_torch_compile=False) is model
    with utils.patch_environment(accelerate_dynamo_backend="eager", accelerate_dynamo_mode="default"):
        assert utils.TorchDynamoPlugin().to_kwargs() == {"backend": "eager"}
    with pytest.raises(ValueError, match="backend='unknown'"):
        utils.TorchDynamoPlugin(backend="unknown")


def test_hooks_of_modules():
    from accel.hooks import ModelHook, add_hook_to_module, remove_hook_from_submodules

    class Doubles(ModelHook):
        no_grad = True

        def pre_forward(self, module, *args, **kwargs):
            return (2 * args[0],), kwargs

        def post_forward(self, module, output):
            return output + 1

    linear = torch.nn.Linear(1, 1)
    expected = linear(torch.full((1, 1), 4.0)) + 2
    assert add_hook_to_module(linear, Doubles()) is linear
    add_hook_to_module(linear, Doubles(), append=True)
    assert linear(torch.ones(1, 1)).item() == pytest.approx(expected.item()) and linear.forward.__name__ == "forward"
    remove_hook_from_submodules(torch.nn.Sequential(linear))
    assert linear(torch.full((1, 1), 4.0)).item() == pytest.approx(expected.item() - 2) and not hasattr(linear, "_hf_hook")
