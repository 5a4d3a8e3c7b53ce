# SPDX-License-Identifier: Apache-2.0
"""Models of torch that are made without memory, spread over devices, and kept in files."""

import contextlib
import copy
import gc
import json
import logging
import os

import pytest

torch = pytest.importorskip("torch", reason="there is no torch")

import accel  # noqa: E402
from accel import hooks  # noqa: E402
from accel.utils import (OffloadedWeightsLoader, PrefixedDataset, align_module_device, find_tied_parameters,  # noqa: E402
                         get_state_dict_from_offload, get_state_dict_offloaded_model, has_offloaded_params, load_offloaded_weight,
                         load_offloaded_weights, load_state_dict, offload_state_dict, offload_weight, save_offload_index, set_module_tensor_to_device)

META = torch.device("meta")
CPU = torch.device("cpu")
ON_DISK = {"first": "cpu", "norm": "disk", "last": "disk", "scale": "cpu"}


class Net(torch.nn.Module):
    """A parameter of its own, a layer with buffers, and a buffer that no state dict has."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(3, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.last = torch.nn.Linear(4, 5)
        self.scale = torch.nn.Parameter(torch.tensor(2.0))
        self.register_buffer("never_saved", torch.ones(5), persistent=False)

    def forward(self, x, shift=0):
        return self.last(self.norm(self.first(x))) * self.scale * self.never_saved + shift


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture
def x():
    return torch.randn(2, 3)


@pytest.fixture
def folder(net, tmp_path):
    accel.Accelerator(cpu=True).save_model(net, tmp_path / "model")
    return tmp_path / "model"


def on_meta(model):
    return sorted(name for name, tensor in model.state_dict().items() if tensor.device == META)


def bytes_in(folder):
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def test_empty_models():
    with accel.init_empty_weights():
        empty = Net()
        tied = torch.nn.Linear(2, 2)
        tied.other = tied.weight
    assert {tensor.device for tensor in empty.parameters()} == {META} and empty.never_saved.device == empty.norm.running_mean.device == CPU
    assert isinstance(empty.scale, torch.nn.Parameter) and empty.scale.requires_grad and tied.other is tied.weight
    with accel.init_empty_weights(include_buffers=True):
        empty = Net()
    assert empty.norm.running_mean.device == META and Net().first.weight.device == CPU
    with contextlib.suppress(KeyError), accel.init_empty_weights(), accel.init_on_device("cpu"):
        inner = torch.nn.Linear(1, 1)
        raise KeyError
    assert inner.weight.device == torch.nn.Linear(1, 1).weight.device == CPU


def test_the_variable_says_whether_buffers_are_empty(monkeypatch):
    monkeypatch.setenv("ACCELERATE_INIT_INCLUDE_BUFFERS", "1")
    with accel.init_empty_weights():
        assert Net().norm.running_mean.device == META


def test_single_tensors_move_and_change(net):
    set_module_tensor_to_device(net, "first.weight", "meta")
    assert net.first.weight.device == META and net.first.weight.requires_grad
    with pytest.raises(ValueError, match="first.weight is on the device meta"):
        set_module_tensor_to_device(net, "first.weight", "cpu")
    with pytest.raises(ValueError, match=r"shape torch.Size\(\[2, 2\]\) in \"weight\" \(which has shape torch.Size\(\[4, 3\]\)\)"):
        set_module_tensor_to_device(net, "first.weight", "cpu", value=torch.zeros(2, 2))
    with pytest.raises(ValueError, match="a Linear has no parameter and no buffer 'wait'; there are: weight, bias"):
        set_module_tensor_to_device(net, "first.wait", "cpu")
    set_module_tensor_to_device(net, "first.weight", "cpu", value=torch.ones(4, 3, dtype=torch.float64))
    assert net.first.weight.dtype == torch.float32 and net.first.weight.sum() == 12
    set_module_tensor_to_device(net, "first.weight", "cpu", value=torch.ones(4, 3), dtype="float16", fp16_statistics=torch.ones(3))
    assert net.first.weight.dtype == torch.float16 and net.first.weight.SCB.tolist() == [1, 1, 1]
    set_module_tensor_to_device(net, "norm.num_batches_tracked", "cpu", value=torch.tensor(3), dtype=torch.float16)
    assert net.norm.num_batches_tracked.dtype == torch.int64 and net.norm.num_batches_tracked == 3


def test_a_tied_tensor_is_on_a_device_once(net):
    net.last.weight = torch.nn.Parameter(net.first.weight.detach())
    there = {net.first.weight.data_ptr(): {}}
    set_module_tensor_to_device(net, "first.weight", "cpu", value=net.first.weight, tied_params_map=there)
    set_module_tensor_to_device(net, "last.weight", "cpu", value=net.last.weight, tied_params_map=there)
    assert net.first.weight is net.last.weight


@pytest.mark.parametrize("buffers", [False, True])
@pytest.mark.parametrize("where", ["cpu", "disk"])
def test_offloaded_models_compute_the_same(net, x, tmp_path, where, buffers):
    expected, whole = net(x, shift=1), net.state_dict()
    if where == "cpu":
        accel.cpu_offload(net, offload_buffers=buffers)
    else:
        accel.disk_offload(net, tmp_path / "off", offload_buffers=buffers)
    away = [name for name in whole if buffers or not name.startswith("norm.r") and not name.startswith("norm.num")]
    for _ in range(2):
        assert on_meta(net) == sorted(away)
        torch.testing.assert_close(net(x, shift=1), expected)
    assert has_offloaded_params(net) and has_offloaded_params(net.first)  # with a hook for inputs and outputs, too
    restored = get_state_dict_offloaded_model(net)
    assert restored.keys() == whole.keys() and all(torch.equal(restored[name], whole[name]) for name in whole)
    hooks.remove_hook_from_submodules(net)
    assert not on_meta(net) and "forward" not in vars(net.first)
    torch.testing.assert_close(net(x, shift=1), expected)


def test_a_forward_that_fails_puts_weights_away(net, x):
    accel.cpu_offload(net)
    with pytest.raises(RuntimeError, match="shape"):
        net(x.T)
    assert len(on_meta(net)) == 7
    net(x)


def test_weights_that_are_on_their_device_are_not_copied(folder, x):
    net = load(folder, ON_DISK)
    seen = []
    net.last.register_forward_pre_hook(lambda module, args: seen.append(module.weight.data_ptr()))

    class Look(hooks.ModelHook):
        def pre_forward(self, module, *args, **kwargs):
            seen.append(module.weight)
            return args, kwargs

    hooks.add_hook_to_module(net.last, Look(), append=True)
    net(x), net(x)
    assert seen[1] is seen[3] and seen[1].data_ptr() == net.last._hf_hook.hooks[0].weights_map["weight"].data_ptr()


def load(folder, device_map, **settings):
    with accel.init_empty_weights():
        net = Net()
    return accel.load_checkpoint_and_dispatch(net, folder, device_map=device_map, **settings).eval()


@pytest.mark.parametrize("safetensors", [True, False])
def test_what_is_on_the_disk_stays_in_the_checkpoint(net, x, tmp_path, safetensors):
    expected = net(x)
    accel.Accelerator(cpu=True).save_model(net, tmp_path, safe_serialization=safetensors)
    before = bytes_in(tmp_path)
    loaded = load(tmp_path, ON_DISK, offload_folder=tmp_path / "off")
    assert on_meta(loaded) == ["last.bias", "last.weight", "norm.bias", "norm.weight"] and loaded.hf_device_map == ON_DISK
    torch.testing.assert_close(loaded(x), expected)
    assert bytes_in(tmp_path) == before and not (tmp_path / "off").exists()
    accel.Accelerator(cpu=True).save_model(loaded, tmp_path / "again")
    assert load_state_dict(tmp_path / "again" / "model.safetensors").keys() == net.state_dict().keys()


def test_an_index_says_where_weights_are(folder, net, x, tmp_path):
    with accel.init_empty_weights():
        empty = Net()
    accel.load_checkpoint_in_model(empty, folder, device_map=ON_DISK, offload_folder=tmp_path / "off")
    index = json.loads((tmp_path / "off" / "index.json").read_text())
    assert index["last.weight"] == {"safetensors_file": str(folder / "model.safetensors"), "weight_name": "last.weight", "dtype": "float32",
                                    "shape": [5, 4]}
    assert os.listdir(tmp_path / "off") == ["index.json"]
    model = accel.dispatch_model(empty.eval(), ON_DISK, offload_dir=tmp_path / "off")
    torch.testing.assert_close(model(x), net(x))
    with pytest.raises(ValueError, match="offload_folder"):
        accel.load_checkpoint_in_model(Net(), folder, device_map=ON_DISK)
    with pytest.raises(ValueError, match="norm, last: the device map puts these on the disk"):
        accel.dispatch_model(Net(), ON_DISK)


def test_weights_come_in_another_type(folder, x):
    net = load(folder, ON_DISK, dtype=torch.float64)
    assert net.first.weight.dtype == net.last.weight.dtype == torch.float64 and net.norm.num_batches_tracked.dtype == torch.int64
    assert net(x.double()).dtype == torch.float64
    kept = Net()
    accel.load_checkpoint_in_model(kept, folder, device_map={"": "cpu"}, dtype="float16", keep_in_fp32_modules=["norm"])
    assert kept.first.weight.dtype == torch.float16 and kept.norm.weight.dtype == kept.norm.running_mean.dtype == torch.float32


def test_names_that_do_not_fit(folder, caplog):
    class Other(Net):
        def __init__(self):
            super().__init__()
            del self.last
            self.more = torch.nn.Linear(1, 1)

    for device_map in (None, {"": "cpu"}):
        with caplog.at_level(logging.WARNING):
            accel.load_checkpoint_in_model(Other(), folder, device_map=device_map)
        assert "not used" in caplog.text and "last.bias, last.weight" in caplog.text
        with pytest.raises(RuntimeError, match="last.bias, last.weight too much, and lacks more.bias, more.weight"):
            accel.load_checkpoint_in_model(Other(), folder, device_map=device_map, strict=True)
    with pytest.raises(ValueError, match="has no device for "):
        accel.load_checkpoint_in_model(Net(), folder, device_map={"last": "cpu"})


def test_a_dispatched_model_is_not_moved(folder, caplog):
    net = load(folder, ON_DISK)
    with pytest.raises(RuntimeError, match="offloaded"):
        net.to("cpu")
    assert net.to(torch.float32) is not None if not on_meta(net) else True
    hooks.remove_hook_from_module(net)
    assert "to" not in vars(net)
    with caplog.at_level(logging.WARNING):
        accel.dispatch_model(Net(), {"": "cpu"}, force_hooks=True).to("cpu")
    assert "should stay" in caplog.text


def test_tied_weights_stay_tied(tmp_path, x):
    def make():
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
        model[1].weight = model[0].weight
        return model

    model = make()
    accel.Accelerator(cpu=True).save_model(model, tmp_path)
    with accel.init_empty_weights():
        empty = make()
    loaded = accel.load_checkpoint_and_dispatch(empty, tmp_path, device_map={"0": "cpu", "1": "cpu"}, strict=True, force_hooks=True)
    assert loaded[0].weight is loaded[1].weight and find_tied_parameters(loaded) == [["0.weight", "1.weight"]]
    torch.testing.assert_close(loaded(x), model(x))


def test_modules_that_are_preloaded_have_all_weights(x):
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)
            self.same = self.linear

        def forward(self, x):
            return torch.nn.functional.linear(x, self.same.weight)  # the module itself is not called

    model = torch.nn.Sequential(Block())
    expected = model(x)
    accel.cpu_offload(model, preload_module_classes=["Block"])
    assert model[0].linear.weight.device == META
    torch.testing.assert_close(model(x), expected)


def test_gradients_flow_through_offloaded_layers(net, x):
    accel.cpu_offload(net.last)
    net.last.requires_grad_(False)
    net(x).sum().backward()
    assert net.first.weight.grad.abs().sum() > 0 and net.last.weight.grad is None


def test_copies_of_a_dispatched_model_stand_alone(folder, x):
    net = load(folder, ON_DISK)
    copied = copy.deepcopy(net)
    expected = net(x)
    del net
    torch.testing.assert_close(copied(x), expected)


def test_align_module_device(net):
    with align_module_device(net.first, "cpu"):
        net.first.weight.data += 1
    value = net.first.weight
    accel.cpu_offload(net)
    with align_module_device(net.first):
        assert torch.equal(net.first.weight, value)
    assert get_state_dict_from_offload(net.first, "first.weight", {"first.weight": ""})["first.weight"].equal(value)
    with pytest.raises(KeyError), align_module_device(net.first):
        raise KeyError
    assert net.first.weight.device == META


def test_files_of_weights(tmp_path):
    tensors = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor(3), "c": torch.ones(2, dtype=torch.bfloat16), "d": torch.empty(0, 2),
               "e": torch.tensor([1.0, -2.0]).to(torch.float8_e4m3fn), "f": torch.tensor([True, False]), "g": torch.arange(6).reshape(2, 3).T}
    offload_state_dict(tmp_path, tensors)
    index = json.loads((tmp_path / "index.json").read_text())
    assert index["b"] == {"dtype": "int64", "shape": []} and index["e"]["dtype"] == "float8_e4m3fn"
    loader = OffloadedWeightsLoader({"own": torch.ones(1)}, tmp_path)
    assert list(loader) == ["own", *tensors] and len(loader) == 8
    for name, tensor in tensors.items():
        assert loader[name].dtype == tensor.dtype and torch.equal(loader[name].float(), tensor.float())
    mapped = loader["a"]
    offload_weight(torch.zeros(2, 3), "a", tmp_path)
    assert mapped[1, 2] == 5 and load_offloaded_weight(tmp_path / "a.dat", index["a"]).sum() == 0  # what is mapped already stays
    (tmp_path / "a.dat").write_bytes(b"123")
    with pytest.raises(ValueError, match="has 3 bytes; expected 24"):
        load_offloaded_weight(tmp_path / "a.dat", index["a"])
    save_offload_index({"z": {"dtype": "int8", "shape": [1]}}, tmp_path)
    assert {"a", "z"} < json.loads((tmp_path / "index.json").read_text()).keys()
    with pytest.raises(ValueError, match="no weights"):
        OffloadedWeightsLoader()
    part = PrefixedDataset({"x.a": 1, "x.b": 2, "y": 3}, "x.")
    assert dict(part) == {"a": 1, "b": 2} and len(part) == 2 and "y" not in part


def test_offloaded_weights_come_back(net, tmp_path):
    offload_state_dict(tmp_path, {"first.weight": torch.ones(4, 3)})
    load_offloaded_weights(net, json.loads((tmp_path / "index.json").read_text()), tmp_path)
    load_offloaded_weights(net, None, tmp_path)
    assert net.first.weight.sum() == 12


def test_metadata_of_files(tmp_path):
    from safetensors.torch import save_file

    save_file({"a": torch.ones(1)}, tmp_path / "tf.safetensors", {"format": "tf"})
    with pytest.raises(ValueError, match="saved by tf"):
        load_state_dict(tmp_path / "tf.safetensors")
    save_file({"a": torch.ones(1)}, tmp_path / "no.safetensors", {"format": "mlx"})
    with pytest.raises(OSError, match="'mlx'"):
        load_state_dict(str(tmp_path / "no.safetensors"))
    save_file({"a": torch.ones(1)}, tmp_path / "none.safetensors")
    assert load_state_dict(tmp_path / "none.safetensors", device_map={"a": "disk"})["a"] == 1


def test_a_chain_of_whole_models(x):
    first, second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    first, hook = accel.cpu_offload_with_hook(first, "cpu")
    second, last = accel.cpu_offload_with_hook(second, "cpu", prev_module_hook=hook)
    assert second(first(x)).shape == (2, 3)
    last.offload()
    last.remove()
    assert not hasattr(second, "_hf_hook") and hasattr(first, "_hf_hook")


def test_layers_are_stored_in_a_smaller_type(net, x):
    from accel.big_modeling import attach_layerwise_casting_hooks

    attach_layerwise_casting_hooks(net, torch.float16, torch.float32, skip_modules_pattern="^last$")
    assert net.first.weight.dtype == torch.float16 and net.last.weight.dtype == net.norm.weight.dtype == torch.float32
    assert net(x).dtype == torch.float32 and net.first.weight.dtype == torch.float16
    with pytest.raises(RuntimeError):
        net(x.T)
    assert net.first.weight.dtype == torch.float16


def test_dispatched_models_are_not_trained_by_several_ranks(ranks):
    assert ranks("""
        import os, torch, accel
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
        model.hf_device_map = {"0": "cpu", "1": "disk"}
        accelerator = accel.Accelerator(cpu=True)
        try:
            accelerator.prepare(model)
        except ValueError as error:
            print("device map" in str(error))
        os.environ["ACCELERATE_BYPASS_DEVICE_MAP"] = "true"
        accelerator.prepare(model)
        """) == ["True\n", "True\n"]


def test_a_dispatched_model_is_prepared_for_one_rank(folder, x, net):
    accelerator = accel.Accelerator(cpu=True)
    model = load(folder, ON_DISK)
    assert accelerator.verify_device_map(model) and not accelerator.verify_device_map(net)
    torch.testing.assert_close(accelerator.prepare(model)(x), net(x))
    model.is_loaded_in_8bit = True
    with pytest.raises(ValueError, match="CPU or disk offload"):
        accel.Accelerator(cpu=True).prepare_model(load_8bit(model))


def load_8bit(model):
    copied = Net()
    copied.is_loaded_in_8bit, copied.hf_device_map = True, model.hf_device_map
    return copied


# Regression: `to()` of a copy of a dispatched model moved the original.
def test_a_copy_of_a_dispatched_model_moves_itself(net):
    model = accel.dispatch_model(net, {"first": "cpu", "norm": "cpu", "last": "cpu", "scale": "cpu", "": "cpu"}, force_hooks=True)
    copied = copy.deepcopy(model)
    copied.to(torch.float64)
    assert (copied.scale.dtype, model.scale.dtype) == (torch.float64, torch.float32)
    x = torch.ones(2, 3)
    torch.testing.assert_close(copied(x.double()).float(), model(x))


def offloaded_to_its_folder(model, folder):
    return accel.disk_offload(model, str(folder), "cpu")


def loaded_from_its_folder(model, folder):
    accel.save(model.state_dict(), f"{folder}/model.safetensors", safe_serialization=True)
    return accel.load_checkpoint_and_dispatch(model, str(folder), {"": "disk"}, offload_folder=str(folder))


# Regression: a copy of a model on the disk took the weights of another one that was offloaded into the same folder since, or
# failed when the folder was gone.
@pytest.mark.parametrize("has_run", [False, True])
@pytest.mark.parametrize("change", ["others", "gone"])
@pytest.mark.parametrize("offload", [offloaded_to_its_folder, loaded_from_its_folder])
def test_a_copy_has_the_weights_of_its_model_when_their_files_have_others(x, tmp_path, offload, change, has_run):
    model, other = Net().eval(), Net().eval()
    expected = model(x)
    model = offload(model, tmp_path)
    if has_run:
        model(x)
    for file in tmp_path.iterdir():
        file.unlink()
    if change == "others":
        offload(other, tmp_path)
    torch.testing.assert_close(copy.deepcopy(model)(x), expected)
    torch.testing.assert_close(model(x), expected)


# Regression: a copy of a model on the disk that had run had all its weights in memory.
@pytest.mark.parametrize("offload", [offloaded_to_its_folder, loaded_from_its_folder])
def test_a_copy_of_a_model_that_ran_leaves_its_weights_in_their_files(x, tmp_path, offload):
    def in_memory():
        gc.collect()
        return sum(isinstance(one, torch.nn.Parameter) and one.shape == (5, 4) and one.device == CPU for one in gc.get_objects())

    model = offload(Net().eval(), tmp_path)
    expected, before = model(x), in_memory()
    copied = copy.deepcopy(model)
    assert in_memory() == before
    torch.testing.assert_close(copied(x), expected)


def test_settings_of_quantization_are_checked():
    from accel.utils import BnbQuantizationConfig

    eight = BnbQuantizationConfig(load_in_8bit=True, skip_modules=["head"])
    assert (eight.target_dtype, eight.torch_dtype, eight.bnb_4bit_compute_dtype) == (torch.int8, torch.float16, torch.float16)
    four = BnbQuantizationConfig(load_in_4bit=True, bnb_4bit_compute_dtype="bf16", bnb_4bit_quant_type="nf4")
    assert four.torch_dtype is torch.bfloat16 and four.target_dtype == "int4"
    for given, word in ((dict(), "both False"), (dict(load_in_8bit=True, load_in_4bit=True), "both True"), (dict(load_in_8bit=1), "load_in_8bit=1"),
                        (dict(load_in_4bit=True, bnb_4bit_quant_type="fp8"), "fp4, nf4"), (dict(load_in_8bit=True, torch_dtype="half"), "torch_dtype='half'"),
                        (dict(load_in_8bit=True, skip_modules="head"), "skip_modules='head'")):
        with pytest.raises(ValueError, match=word):
            BnbQuantizationConfig(**given)
    with pytest.warns(UserWarning, match="llm_int8_threshold"):
        BnbQuantizationConfig(load_in_4bit=True, llm_int8_threshold=5)


def test_heads_and_tied_weights_are_not_quantized():
    from accel import nn
    from accel.utils import get_keys_to_not_convert

    class Tied(torch.nn.Module):
        def __init__(self, *prefix):
            super().__init__()
            self.table, self.inner, self.head = torch.nn.Embedding(3, 3), torch.nn.Linear(3, 3), torch.nn.Linear(3, 3, bias=False)
            if prefix:
                self.base_model_prefix = prefix[0]

    tied = Tied()
    tied.head.weight = tied.table.weight
    assert get_keys_to_not_convert(tied) == ["head", "table"] and get_keys_to_not_convert(Tied()) == ["head"]
    assert get_keys_to_not_convert(Tied("model")) == [] and get_keys_to_not_convert(Tied("inner")) == ["head"]
    config = {"model_type": "llama", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 6, "num_hidden_layers": 1, "num_attention_heads": 2}
    assert get_keys_to_not_convert(nn.from_config(config)) == ["lm_head"]
    assert get_keys_to_not_convert(nn.from_config({**config, "tie_word_embeddings": True})) == ["lm_head", "model.embed_tokens"]
    with pytest.raises(TypeError, match="expected one of accel or torch"):
        get_keys_to_not_convert("llama")


@pytest.mark.parametrize("given, kind", [(dict(load_in_8bit=True), "SCB"), (dict(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True),
                                                                            "weight_nested_absmax")])
def test_models_of_accel_are_quantized_by_these_settings(tmp_path, given, kind):
    from accel import nn
    from accel.utils import BnbQuantizationConfig, load_and_quantize_model

    def chain():
        return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.Linear(64, 2))

    config = BnbQuantizationConfig(torch_dtype="fp32", bnb_4bit_compute_dtype="fp32", keep_in_fp32_modules=["0"], **given)
    loaded, x = chain().eval(), accel.randn(3, 64)
    accel.Accelerator(cpu=True).save_model(loaded, str(tmp_path))
    expected = loaded(x).tolist()
    with accel.init_empty_weights():
        empty = chain().eval()
    with pytest.raises(RuntimeError, match="weights_location is None"):
        load_and_quantize_model(empty, config)
    assert load_and_quantize_model(empty, config, weights_location=str(tmp_path)) is empty
    assert load_and_quantize_model(loaded, config) is loaded
    for model in (loaded, empty):
        names = set(model.state_dict())
        assert f"2.{kind}" in names and not {f"0.{kind}", f"3.{kind}"} & names
        assert (model.is_loaded_in_8bit, model.is_loaded_in_4bit) == (config.load_in_8bit, config.load_in_4bit)
        for row, wanted in zip(model(x).tolist(), expected):
            assert row == pytest.approx(wanted, abs=0.1)
    with accel.init_empty_weights():
        spread = chain().eval()
    load_and_quantize_model(spread, config, str(tmp_path), {"": "cpu", "2": "disk"}, offload_folder=str(tmp_path / "offload"))
    assert spread(x).tolist()[0] == pytest.approx(loaded(x).tolist()[0], abs=1e-5) and spread.hf_device_map["2"] == "disk"
    config.skip_modules = ["nowhere"]
    with pytest.raises(accel.errors.NotFoundError, match="nowhere"):
        load_and_quantize_model(chain(), config)
