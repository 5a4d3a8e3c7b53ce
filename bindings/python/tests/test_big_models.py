# SPDX-License-Identifier: Apache-2.0
"""Modules of accel that are made without memory, spread over devices, and kept in files."""

import contextlib

import pytest

import accel
from accel import nn
from accel.engine.torch_types import torch_module
from accel.utils import (OffloadedWeightsLoader, PrefixedDataset, align_module_device, calculate_maximum_sizes, check_device_map,
                         clean_device_map, compute_module_sizes, compute_module_total_buffer_size, extract_submodules_state_dict,
                         fallback_allocate, find_tied_parameters, get_balanced_memory, get_max_layer_size, get_max_memory, get_module_leaves,
                         get_module_size_with_ties, get_non_persistent_buffers, get_state_dict_offloaded_model, has_offloaded_params,
                         load_offloaded_weight, load_offloaded_weights, named_module_tensors, offload_state_dict, offload_weight,
                         retie_parameters, set_module_tensor_to_device)

ON_DISK = {"0": "cpu", "1": "disk"}


def chain():
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 5))


def saved(folder):
    """A model, whose weights are in the folder, too, and an input."""
    model = chain()
    accel.Accelerator(cpu=True).save_model(model, folder)
    return model, accel.randn(2, 3)


def test_a_model_is_loaded_and_computes_the_same(tmp_path):
    model, x = saved(tmp_path)
    with accel.init_empty_weights():
        empty = chain()
    assert {parameter.device.type for parameter in empty.parameters()} == {"meta"}
    loaded = accel.load_checkpoint_and_dispatch(empty, tmp_path, device_map=ON_DISK)
    assert loaded.hf_device_map == ON_DISK and has_offloaded_params(loaded[1]) and not has_offloaded_params(loaded[0])
    assert accel.ops.allclose(loaded(x), model(x)) and accel.Accelerator(cpu=True).verify_device_map(loaded)
    with align_module_device(loaded[1]):
        assert accel.ops.equal(loaded[1].weight, model[1].weight)
    state = get_state_dict_offloaded_model(loaded)
    assert all(accel.ops.equal(state[name], value) for name, value in model.state_dict().items())
    accel.hooks.remove_hook_from_submodules(loaded)
    assert not has_offloaded_params(loaded[1]) and accel.ops.allclose(loaded(x), model(x))


# Regression: `OffloadedWeightsLoader` and `offload_state_dict()` needed torch.
def test_weights_in_files_without_torch(tmp_path):
    if torch_module() is not None:
        pytest.skip("the program has imported torch, and gets its tensors")
    model, other = chain(), chain()
    state = {**model.state_dict(), "none": accel.empty(0, 2), "one": accel.tensor(3), "half": accel.ones(2, dtype="bfloat16"),
             "turned": accel.arange(6).reshape(2, 3).T, "truths": accel.tensor([True, False])}
    offload_state_dict(tmp_path, state)
    loader = OffloadedWeightsLoader({"own": accel.ones(1)}, tmp_path)
    assert list(loader) == ["own", *state] and len(loader) == len(state) + 1
    for name, tensor in state.items():
        assert loader[name].dtype == tensor.dtype and loader[name].shape == tensor.shape and accel.ops.equal(loader[name], tensor)
    index = loader.index
    assert index["half"] == {"dtype": "bfloat16", "shape": [2]} and index["one"]["shape"] == []
    load_offloaded_weights(other, {name: index[name] for name in model.state_dict()}, tmp_path)
    x = accel.randn(2, 3)
    assert accel.ops.equal(other(x), model(x))
    offload_weight(accel.zeros(2), "half", tmp_path, index)
    assert load_offloaded_weight(tmp_path / "half.dat", index["half"]).tolist() == [0, 0] and index["half"]["dtype"] == "float32"
    accel.save(model.state_dict(), tmp_path / "model.safetensors", safe_serialization=True)
    places = {"moved": {"safetensors_file": str(tmp_path / "model.safetensors"), "weight_name": "0.bias", "dtype": "float64"}}
    moved = OffloadedWeightsLoader(index=places)["moved"]
    assert moved.dtype == accel.float64 and accel.ops.equal(moved.float(), model[0].bias)
    assert dict(PrefixedDataset({"a.b": 1, "c": 2}, "a.")) == {"b": 1} and extract_submodules_state_dict({"a.b": 1, "c": 2}, ["a"]) == {"a.b": 1}


# Regression: `cpu_offload(state_dict=)`, and settings of `set_module_tensor_to_device()` that modules of accel do not have, were
# accepted and ignored.
@pytest.mark.parametrize("empty", [False, True])
def test_a_model_is_offloaded_with_the_weights_of_a_state_dict(empty):
    model, x = chain(), accel.randn(2, 3)
    with accel.init_empty_weights() if empty else contextlib.nullcontext():
        other = chain()
    accel.cpu_offload(other, "cpu", state_dict=model.state_dict())
    assert accel.ops.equal(other(x), model(x))
    with pytest.raises(ValueError, match="state_dict lacks '1.bias'"):
        accel.cpu_offload(chain(), "cpu", state_dict={name: value for name, value in model.state_dict().items() if name != "1.bias"})


def test_tied_weights_have_one_name_in_a_state_dict():
    def tied():
        model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
        model[1].weight = model[0].weight
        return model

    model, x = tied(), accel.randn(2, 3)
    for kept in ("0.weight", "1.weight"):
        other = tied()
        accel.cpu_offload(other, "cpu", state_dict={name: value for name, value in model.state_dict().items() if name == kept or "bias" in name})
        assert accel.ops.equal(other(x), model(x))


# Regression: without torch a device map was refused, and the metadata were not looked at.
def test_weights_come_to_the_devices_of_a_map(tmp_path):
    model, _ = saved(tmp_path)
    weights = accel.utils.load_state_dict(tmp_path / "model.safetensors", device_map={"0": "cpu", "1": "disk"})
    assert all(accel.ops.equal(accel.tensor(weights[name].tolist()), value) for name, value in model.state_dict().items())
    accel.save(model.state_dict(), tmp_path / "whole.safetensors", safe_serialization=True)
    with pytest.raises(ValueError, match="lake"):
        accel.utils.load_state_dict(tmp_path / "whole.safetensors", device_map={"": "lake"})


def test_what_only_models_of_torch_have_is_refused():
    for setting in ("tied_params_map", "fp16_statistics"):
        with pytest.raises(ValueError, match=f"{setting} is for models of torch"):
            set_module_tensor_to_device(chain(), "0.weight", "cpu", **{setting: {}})


def test_a_model_is_offloaded_into_files(tmp_path):
    model, x = chain(), accel.randn(2, 3)
    expected = model(x)
    accel.disk_offload(model, tmp_path / "off", "cpu")
    assert has_offloaded_params(model[0]) and accel.ops.allclose(model(x), expected)


def test_weights_on_disk_leave_the_memory(tmp_path):
    model, x = chain(), accel.randn(2, 3)
    expected = model(x)
    with pytest.raises(ValueError, match="offload_folder"):
        accel.dispatch_model(model, ON_DISK)
    assert not has_offloaded_params(model[1])
    accel.dispatch_model(model, ON_DISK, offload_dir=tmp_path / "off")
    assert sorted(path.name for path in (tmp_path / "off").iterdir()) == ["1.bias.dat", "1.weight.dat", "index.json"]
    assert has_offloaded_params(model[1]) and accel.ops.equal(model(x), expected)


def test_a_class_that_is_skipped_takes_all_below_it_along():
    model = nn.Sequential(chain(), nn.Linear(5, 2))
    accel.big_modeling.attach_layerwise_casting_hooks(model, accel.float16, accel.float32, skip_modules_pattern=["^0$"])
    assert [parameter.dtype for parameter in model.parameters()] == [accel.float32] * 4 + [accel.float16] * 2


def test_weights_are_loaded_where_a_map_says(tmp_path):
    model, x = saved(tmp_path)
    with accel.init_empty_weights():
        empty = chain()
    accel.load_checkpoint_in_model(empty, tmp_path, device_map=ON_DISK, offload_folder=tmp_path / "off")
    accel.dispatch_model(empty, ON_DISK, offload_dir=tmp_path / "off")
    assert accel.ops.allclose(empty(x), model(x))
    with pytest.raises(ValueError, match="1.weight"):
        accel.dispatch_model(chain(), {"0": "cpu"})
    half = chain()
    accel.load_checkpoint_in_model(half, tmp_path, device_map={"": "cpu"}, dtype=accel.float16)
    assert half[0].weight.dtype == accel.float16


def test_single_tensors():
    model = chain()
    assert [name for name, _ in named_module_tensors(model, recurse=True)] == ["0.weight", "0.bias", "1.weight", "1.bias"]
    set_module_tensor_to_device(model, "0.weight", "meta")
    assert model[0].weight.device.type == "meta"
    with pytest.raises(ValueError):
        set_module_tensor_to_device(model, "0.weight", "cpu")
    set_module_tensor_to_device(model, "0.weight", "cpu", value=accel.ones(4, 3))
    assert model[0].weight.sum().item() == 12
    assert find_tied_parameters(model) == [] and get_non_persistent_buffers(model, recurse=True) == set()
    same = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    same.tie("1.weight", "0.weight")
    assert find_tied_parameters(same) == [["0.weight", "1.weight"]]
    retie_parameters(same, [["0.weight", "1.weight"]])


def test_sizes_and_maps():
    model = chain()
    sizes = compute_module_sizes(model)
    assert sizes[""] == 164 and sizes["0"] == 64 and sizes["no such module"] == 0 and compute_module_total_buffer_size(model) == 0
    assert compute_module_sizes(model, dtype=accel.float16)[""] == 82 and calculate_maximum_sizes(model) == (164, (100, ["1"]))
    assert accel.infer_auto_device_map(model, {"cpu": 170}) == {"": "cpu"} and accel.infer_auto_device_map(model, {"cpu": 160}) == {"": "disk"}
    assert accel.infer_auto_device_map(model, {0: "1KB"}) == {"": 0}
    assert get_balanced_memory(model, {0: 1000, 1: 1000})[1] == 1000 and get_max_memory({"cpu": "1KiB", 0: 5}) == {0: 5, "cpu": 1024}
    assert clean_device_map({"a.x": 0, "a.y": 0, "b": 1}) == {"a": 0, "b": 1}
    assert clean_device_map({"a.x": 0, "a.y": 0, "b": 0}, "a") == {"a": 0, "b": 0}
    with pytest.warns(UserWarning, match="device_map keys"):
        check_device_map(model, {"": "cpu", "nowhere": 0})
    with pytest.raises(ValueError, match="somewhere"):
        accel.load_checkpoint_and_dispatch(model, "model", device_map="somewhere")


def test_steps_of_the_search():
    model = chain()
    sizes = compute_module_sizes(model)
    parts = list(model.named_children())
    assert sorted(get_module_leaves(sizes)) == ["0.bias", "0.weight", "1.bias", "1.weight"]
    assert get_max_layer_size([("", model)], {**sizes, ".0": 64, ".1": 100}, []) == (100, [".1"])
    assert get_max_layer_size(parts, sizes, []) == (100, ["1"])
    assert get_module_size_with_ties(["1.weight"], 64, sizes, parts[1:])[:2] == (84, ["1"])
    name, module, rest = fallback_allocate(parts, sizes, 70)
    assert name == "0" and module is parts[0][1] and [path for path, _ in rest] == ["1"]
    assert fallback_allocate(parts, sizes, 10) == (None, None, parts)


def test_a_model_moves_as_a_whole():
    x = accel.randn(2, 3)
    first, hook = accel.cpu_offload_with_hook(chain(), "cpu")
    assert first(x).shape == (2, 5)
    hook.offload()
    hook.remove()


def test_layers_are_stored_in_a_smaller_type():
    model, x = chain(), accel.randn(2, 3)
    from accel.big_modeling import attach_layerwise_casting_hooks

    attach_layerwise_casting_hooks(model, accel.float16, accel.float32, skip_modules_pattern="^1$")
    assert model[0].weight.dtype == accel.float16 and model[1].weight.dtype == accel.float32
    assert model(x).dtype == accel.float32
