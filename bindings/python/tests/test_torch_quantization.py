# SPDX-License-Identifier: Apache-2.0
"""Models of torch whose linear layers are quantized by BnbQuantizationConfig."""

import copy
import io
import json
import os
import pathlib
import pickle

import pytest

torch = pytest.importorskip("torch", reason="there is no torch")

import accel  # noqa: E402
from accel.big_models.checkpoint_loading import load_modules  # noqa: E402
from accel.utils import (BnbQuantizationConfig, get_parameter_device, get_quantized_model_device_map, has_4bit_bnb_layers,  # noqa: E402
                         load_and_quantize_model, load_checkpoint_in_model, load_offloaded_weights, quantize_and_offload_8bit, replace_with_bnb_layers,
                         set_module_tensor_to_device)

RECORDED = pathlib.Path(__file__).resolve().parents[3] / "tests/engine/fixtures/quantized.json"
SETTINGS = {"llm_int8": dict(load_in_8bit=True), "nf4": dict(load_in_4bit=True, bnb_4bit_quant_type="nf4"), "fp4": dict(load_in_4bit=True),
            "twice": dict(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True)}
SCALES = {"llm_int8": {"SCB", "weight_format"}, "nf4": {"weight.absmax", "weight.quant_map", "weight.quant_state.bitsandbytes__nf4"},
          "fp4": {"weight.absmax", "weight.quant_map", "weight.quant_state.bitsandbytes__fp4"},
          "twice": {"weight.absmax", "weight.quant_map", "weight.nested_absmax", "weight.nested_quant_map", "weight.quant_state.bitsandbytes__nf4"}}
each_kind = pytest.mark.parametrize("kind", SETTINGS)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(64, 96), torch.nn.Linear(96, 64, bias=False)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.norm = torch.nn.Embedding(11, 64), torch.nn.LayerNorm(64)
        self.blocks = torch.nn.ModuleList([Block(), Block()])
        self.odd = torch.nn.Linear(64, 7)
        self.head = torch.nn.Linear(7, 5)

    def forward(self, tokens):
        x = self.table(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.odd(self.norm(x)))


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture
def tokens():
    return torch.tensor([[1, 5, 2], [7, 7, 0]])


@pytest.fixture
def folder(net, tmp_path):
    accel.Accelerator(cpu=True).save_model(net, tmp_path / "model")
    return str(tmp_path / "model")


def config_of(kind, **settings):
    return BnbQuantizationConfig(torch_dtype="fp32", **({"bnb_4bit_compute_dtype": "fp32"} if kind != "llm_int8" else {}), **SETTINGS[kind], **settings)


def empty():
    with accel.init_empty_weights():
        return Net().eval()


def decoded(layer):
    """The weight that the codes stand for."""
    layer = copy.deepcopy(layer)
    layer.bias = None
    layer.threshold = 1e-30  # nothing is rounded
    return layer(torch.eye(layer.in_features)).detach().T


@each_kind
def test_layers_compute_with_their_decoded_weights(net, tokens, kind):
    plain = copy.deepcopy(net)
    expected = plain(tokens)
    made = load_and_quantize_model(net, config_of(kind))
    assert made is net and (net.is_loaded_in_8bit, net.is_loaded_in_4bit) == (kind == "llm_int8", kind != "llm_int8")
    up, head = net.blocks[0].up, net.head
    assert type(up).__name__ == ("Linear8bitLt" if kind == "llm_int8" else "Linear4bit") and isinstance(up, torch.nn.Linear)
    assert (up.weight.dtype, up.weight.shape) == ((torch.int8, (96, 64)) if kind == "llm_int8" else (torch.uint8, (96 * 32, 1)))
    assert not any(parameter.requires_grad for parameter in up.parameters()) and type(head) is torch.nn.Linear and head.weight.requires_grad
    assert set(up.state_dict()) == {"weight", "bias", *SCALES[kind]}
    assert ("threshold=6.0" if kind == "llm_int8" else "quant_type=") in repr(up) and "in_features=64, out_features=96" in repr(up)
    weight = decoded(up)
    assert 1e-5 < (weight - plain.blocks[0].up.weight).norm() / weight.norm() < (0.01 if kind == "llm_int8" else 0.15)
    x = torch.randn(2, 3, 64, requires_grad=True)
    output = up(x)
    torch.testing.assert_close(output, torch.nn.functional.linear(x, weight, up.bias), atol=0.03, rtol=0.01)
    output.sum().backward()
    torch.testing.assert_close(x.grad, torch.ones(2, 3, 96) @ weight, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(net(tokens), expected, atol=0.15, rtol=0.1)
    assert not torch.equal(net(tokens), expected)
    assert has_4bit_bnb_layers(net) and not has_4bit_bnb_layers(plain) and get_parameter_device(net) == torch.device("cpu")
    with torch.autocast("cpu", torch.bfloat16):
        assert up(x).dtype == torch.bfloat16


@each_kind
def test_models_without_memory_get_codes_as_weights_are_read(net, tokens, folder, kind, tmp_path):
    loaded = load_and_quantize_model(copy.deepcopy(net), config_of(kind))
    torch.save(net.state_dict(), tmp_path / "weights.bin")
    for location in (folder, str(tmp_path / "weights.bin")):
        made = load_and_quantize_model(empty(), config_of(kind), location)
        assert list(made.state_dict()) == list(loaded.state_dict()) and made.hf_device_map == {"": "cpu"}
        for name, tensor in made.state_dict().items():
            assert torch.equal(tensor, loaded.state_dict()[name]), name
        assert torch.equal(made(tokens), loaded(tokens))
    accel.Accelerator(cpu=True).save_model(loaded, tmp_path / "quantized")
    again = load_and_quantize_model(empty(), config_of(kind), str(tmp_path / "quantized"))
    assert torch.equal(again(tokens), loaded(tokens)) and list(again.state_dict()) == list(loaded.state_dict())
    of_stage = replace_with_bnb_layers(empty(), config_of(kind), ["head"])
    for location in (folder, str(tmp_path / "quantized")):
        load_modules(of_stage, location)
        assert torch.equal(of_stage(tokens), loaded(tokens))
    without_map = replace_with_bnb_layers(empty(), config_of(kind), ["head"])
    load_checkpoint_in_model(without_map, str(tmp_path / "quantized"), strict=True)
    assert torch.equal(without_map(tokens), loaded(tokens))


@each_kind
def test_codes_are_on_the_disk_as_they_are(net, tokens, folder, kind, tmp_path):
    loaded, config = load_and_quantize_model(net, config_of(kind)), config_of(kind)
    device_map = {"table": "cpu", "norm": "cpu", "blocks.0": "disk", "blocks.1": "cpu", "odd": "disk", "head": "cpu"}
    made = load_and_quantize_model(empty(), config, folder, device_map, offload_folder=str(tmp_path / "disk"))
    up = made.blocks[0].up
    assert up.weight.is_meta and made.hf_device_map == device_map and config.skip_modules is None
    assert os.path.getsize(tmp_path / "disk" / "blocks.0.up.weight.dat") == 64 * 96 // (1 if kind == "llm_int8" else 2)
    for _ in range(2):
        assert torch.equal(made(tokens), loaded(tokens))
    assert torch.equal(copy.deepcopy(made)(tokens), loaded(tokens)) and up.weight.is_meta
    with pytest.raises(ValueError, match="CPU or disk offload"):
        accel.Accelerator(cpu=True).prepare(made)
    accel.Accelerator(cpu=True).save_model(loaded, tmp_path / "quantized")
    made = load_and_quantize_model(empty(), config, str(tmp_path / "quantized"), device_map, offload_folder=str(tmp_path / "again"))
    assert torch.equal(made(tokens), loaded(tokens)) and not list((tmp_path / "again").glob("*.dat"))


@each_kind
def test_copies_and_conversions(net, tokens, kind):
    load_and_quantize_model(net, config_of(kind))
    expected, up = net(tokens), net.blocks[0].up
    for copied in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(copied(tokens), expected) and copied.blocks[0].up.weight is not up.weight
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    other = load_and_quantize_model(Net().eval(), config_of(kind))
    weight = other.blocks[0].up.weight
    other(tokens)  # its scales are decoded
    assert not other.load_state_dict(torch.load(file)).missing_keys
    assert torch.equal(other(tokens), expected) and other.blocks[0].up.weight is weight
    half = copy.deepcopy(net).half()
    scales = half.blocks[0].up
    assert scales.bias.dtype == torch.float16 and all(tensor.dtype != torch.float16 for name, tensor in scales.named_buffers())
    torch.testing.assert_close(half(tokens).float(), expected, atol=0.05, rtol=0.05)
    fresh = Net().eval()
    fresh.load_state_dict(fresh.state_dict())
    plain = load_and_quantize_model(copy.deepcopy(fresh), config_of(kind))(tokens)
    other.load_state_dict(fresh.state_dict())  # floating weights become codes
    assert torch.equal(other(tokens), plain)
    with pytest.raises(RuntimeError, match="Unexpected key.*blocks.0.up.strange"):
        other.load_state_dict({**net.state_dict(), "blocks.0.up.strange": weight})
    with pytest.raises(RuntimeError, match="blocks.0.up.weight has the shape"):
        other.load_state_dict({**net.state_dict(), "blocks.0.up.weight": torch.ones(3, 64)})
    with pytest.raises(RuntimeError, match="Missing key.*blocks.0.up.weight"):
        other.load_state_dict({name: tensor for name, tensor in net.state_dict().items() if name != "blocks.0.up.weight"})


@each_kind
def test_weights_that_are_loaded_in_inference_mode(net, tokens, kind):
    other = Net().eval()
    with torch.inference_mode():
        loaded = load_and_quantize_model(Net().eval(), config_of(kind))
        loaded(tokens)  # its scales are decoded
        for parameter in other.parameters():
            parameter.mul_(3)
        loaded.load_state_dict(other.state_dict())
        assert torch.equal(loaded(tokens), load_and_quantize_model(copy.deepcopy(other), config_of(kind))(tokens))


def recorded_tensor(entry):
    dtype = getattr(torch, entry["dtype"])
    if "values" in entry:
        return torch.tensor(entry["values"], dtype=dtype).reshape(entry["shape"])
    return torch.frombuffer(bytearray.fromhex(entry["bytes"]), dtype=torch.uint8).view(dtype).reshape(entry["shape"])


def pattern(rows, columns, seed):
    numbers = ((torch.arange(rows * columns) * 1103515245 + 12345 * (seed + 1)) % 2**31 // 256) % 65536 - 32768
    return (numbers.double() / 8192).float().reshape(rows, columns)


@pytest.mark.parametrize("case", json.loads(RECORDED.read_text()), ids=lambda case: f"{case['kind']}-{case['rows']}x{case['columns']}")
def test_state_dicts_of_bitsandbytes(case):
    layer = torch.nn.Sequential(torch.nn.Linear(case["columns"], case["rows"]))
    config = config_of({"llm_int8": "llm_int8"}.get(case["kind"], case["kind"]), skip_modules=[])
    load_and_quantize_model(layer, config)
    state = {f"0.{name}": recorded_tensor(entry) for name, entry in case["state"].items()}
    if "quant_state" in case:
        state[f"0.weight.quant_state.bitsandbytes__{case['kind']}"] = torch.frombuffer(bytearray(case["quant_state"].encode()), dtype=torch.uint8)
    layer.load_state_dict({**state, "0.bias": pattern(1, case["rows"], 2)[0]})
    expected = recorded_tensor(case["outputs"])
    inputs = pattern(3, case["columns"], 3)
    if case["kind"] == "llm_int8":
        inputs[1, 5], inputs[2, 9] = 20, -30  # outliers
    error = (layer(inputs) - expected).norm() / expected.norm()
    assert error < (0.01 if case["kind"] == "llm_int8" else 2e-3)


def test_modules_that_are_left_out(net, folder):
    net.head.weight = torch.nn.Parameter(torch.zeros(5, 7))
    config = BnbQuantizationConfig(load_in_8bit=True, skip_modules=["odd"], keep_in_fp32_modules=["down", "norm"], torch_dtype="bf16")
    load_and_quantize_model(net, config)
    kinds = {name: type(module).__name__ for name, module in net.named_modules() if isinstance(module, torch.nn.Linear)}
    assert kinds == {"blocks.0.up": "Linear8bitLt", "blocks.0.down": "Linear", "blocks.1.up": "Linear8bitLt", "blocks.1.down": "Linear", "odd": "Linear",
                     "head": "Linear8bitLt"}
    assert {name: parameter.dtype for name, parameter in net.named_parameters() if "blocks.0" in name or "norm" in name or "odd.w" in name} == {
        "norm.weight": torch.float32, "norm.bias": torch.float32, "blocks.0.up.weight": torch.int8, "blocks.0.up.bias": torch.bfloat16,
        "blocks.0.down.weight": torch.float32, "odd.weight": torch.bfloat16}
    made = load_and_quantize_model(empty(), BnbQuantizationConfig(load_in_8bit=True, keep_in_fp32_modules=["norm", "blocks.1"]), folder)
    assert made.norm.weight.dtype == made.blocks[1].up.weight.dtype == torch.float32 and made.table.weight.dtype == torch.float16
    assert made.blocks[0].up.weight.dtype == torch.int8


def test_tied_weights_and_layers_whose_weights_others_read(net):
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.inner, self.head = torch.nn.Embedding(9, 64), torch.nn.Linear(64, 64), torch.nn.Linear(64, 9, bias=False)
            self.attention = torch.nn.MultiheadAttention(64, 2)
            self.head.weight = self.table.weight

        def forward(self, tokens):
            x = self.inner(self.table(tokens))
            return self.head(self.attention(x, x, x)[0])

    torch.manual_seed(1)
    model, tokens = Tied().eval(), torch.tensor([[3, 1]])
    expected = model(tokens)
    with pytest.raises(ValueError, match="head.weight and table.weight are one tensor"):
        load_and_quantize_model(copy.deepcopy(model), config_of("nf4", skip_modules=["attention"]))
    load_and_quantize_model(model, config_of("nf4", keep_in_fp32_modules=["head"]))
    assert model.head.weight is model.table.weight and type(model.inner).__name__ == "Linear4bit"
    assert type(model.attention.out_proj).__name__ == "NonDynamicallyQuantizableLinear"
    torch.testing.assert_close(model(tokens), expected, atol=0.6, rtol=0.2)


def test_what_is_refused(net, folder, tmp_path, caplog):
    with pytest.raises(RuntimeError, match="weights_location is None"):
        load_and_quantize_model(empty(), config_of("nf4"))
    for field in ("skip_modules", "keep_in_fp32_modules"):
        with pytest.raises(ValueError, match=f"{field} has nowhere, which is no module of Net"):
            load_and_quantize_model(net, config_of("nf4", **{field: ["nowhere"]}))
    with pytest.raises(ValueError, match="device_map='best': expected a map"):
        load_and_quantize_model(empty(), config_of("nf4"), folder, "best")
    with pytest.raises(ValueError, match="offload_folder"):
        load_and_quantize_model(empty(), config_of("nf4"), folder, {"": "disk"})
    with pytest.raises(ValueError, match="expected load_and_quantize_model"):
        accel.load_checkpoint_and_dispatch(replace_with_bnb_layers(empty(), config_of("nf4")), folder, {"": "disk"})
    with pytest.raises(TypeError, match="expected one of accel or torch"):
        load_and_quantize_model("llama", config_of("nf4"))
    wrong = copy.deepcopy(net)
    with torch.no_grad():
        wrong.blocks[1].down.weight[3, 4] = float("inf")
    with pytest.raises(RuntimeError, match="'blocks.1.down.weight' has a NaN or an infinity"):
        load_and_quantize_model(wrong, config_of("nf4"))
    quantized = load_and_quantize_model(copy.deepcopy(net), config_of("nf4"))
    assert "takes their memory" in caplog.text
    with pytest.raises(ValueError, match="quantized already"):
        load_and_quantize_model(quantized, config_of("nf4"))
    accelerator = accel.Accelerator(cpu=True)
    with pytest.raises(ValueError, match="Net is prepared"):
        load_and_quantize_model(accelerator.prepare(copy.deepcopy(net)), config_of("nf4"))
    accelerator.save_model(quantized, tmp_path / "nf4")
    with pytest.raises(RuntimeError, match="not those of a quantized weight"):  # of another kind
        load_and_quantize_model(empty(), config_of("fp4"), str(tmp_path / "nf4"))
    with pytest.raises(RuntimeError, match="the input is"):
        quantized.blocks[0].up(torch.ones(2, 63))
    caplog.clear()
    replace_with_bnb_layers(torch.nn.Sequential(torch.nn.ReLU()), config_of("nf4"))
    assert "has no linear layer to quantize" in caplog.text
    named = replace_with_bnb_layers(net.blocks, config_of("nf4"), ["blocks.0"], ["blocks"])
    assert type(named[0].up) is torch.nn.Linear and type(named[1].up).__name__ == "Linear4bit"


def test_device_maps_count_codes():
    config, given = config_of("nf4", skip_modules=["head"]), {"": "cpu"}
    assert get_quantized_model_device_map(empty(), config) == {"": "cpu"} and get_quantized_model_device_map(empty(), config, given) is given
    for strategy in ("auto", "sequential", "balanced", "balanced_low_0"):
        found = [get_quantized_model_device_map(empty(), config_of(kind, skip_modules=["head"]), strategy, {"cpu": 19000, "disk": "1GB"}, ["Block"])
                 for kind in ("nf4", "llm_int8")]
        assert found[0] == {"": "cpu"} and "disk" in found[1].values(), strategy  # 13 KB and 26 KB; 105 KB in float32


def test_weights_are_offloaded_as_codes(net, tokens, tmp_path):
    loaded = load_and_quantize_model(copy.deepcopy(net), config_of("llm_int8"))
    made, index = replace_with_bnb_layers(empty(), config_of("llm_int8"), ["head"]), {}
    for name, parameter in net.named_parameters():
        quantize_and_offload_8bit(made, parameter.detach(), name, None, str(tmp_path), index, None)
    assert index["blocks.0.up.weight"] == {"dtype": "int8", "shape": [96, 64]} and index["blocks.0.up.SCB"] == {"dtype": "float32", "shape": [96]}
    assert all(parameter.is_meta for parameter in made.parameters())
    load_offloaded_weights(made, index, str(tmp_path))
    assert torch.equal(made(tokens), loaded(tokens))
    up = loaded.blocks[0].up
    again = replace_with_bnb_layers(empty(), config_of("llm_int8"), ["head"])
    quantize_and_offload_8bit(again, up.weight.detach(), "blocks.0.up.weight", None, str(tmp_path), index, up.SCB * 2)
    set_module_tensor_to_device(again, "blocks.0.up.weight", "cpu", up.weight.detach())
    torch.testing.assert_close(decoded(again.blocks[0].up), decoded(up) * 2)


@each_kind
def test_what_is_trained_on_quantized_layers(net, tokens, kind, tmp_path):
    class Adapted(torch.nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer, self.low, self.high = layer, torch.nn.Linear(64, 4, bias=False), torch.nn.Linear(4, 96, bias=False)

        def forward(self, x):
            return self.layer(x) + self.high(self.low(x))

    net = load_and_quantize_model(copy.deepcopy(net), config_of(kind)).requires_grad_(False)
    for block in net.blocks:
        block.up = Adapted(block.up)
    accelerator = accel.Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(net, torch.optim.AdamW([one for one in net.parameters() if one.requires_grad], lr=0.01))
    codes, losses = net.blocks[0].down.weight.clone(), []
    for _ in range(5):
        loss = model(tokens).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0] and torch.equal(net.blocks[0].down.weight, codes)
    accelerator.save_state(str(tmp_path / "state"))
    expected = model(tokens)
    with torch.no_grad():
        net.blocks[0].up.high.weight.zero_()
        net.blocks[0].down.weight.zero_()
    assert not torch.equal(model(tokens), expected)
    accelerator.load_state(str(tmp_path / "state"))
    assert torch.equal(model(tokens), expected)
    assert set(accelerator.get_state_dict(model)) == set(net.state_dict()) and f"blocks.0.down.{sorted(SCALES[kind])[0]}" in net.state_dict()


def test_models_of_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    configuration = transformers.LlamaConfig(vocab_size=32, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                                             num_key_value_heads=2, tie_word_embeddings=True)
    model, tokens = transformers.LlamaForCausalLM(configuration).eval(), torch.tensor([[1, 9, 4]])
    model.save_pretrained(tmp_path)
    with torch.no_grad():
        expected = model(tokens).logits
    with accel.init_empty_weights():
        made = transformers.LlamaForCausalLM(configuration)
    made.tie_weights()
    made = load_and_quantize_model(made, config_of("twice"), str(tmp_path), "auto", ["LlamaDecoderLayer"]).eval()
    quantized = [name for name, module in made.named_modules() if type(module).__name__ == "Linear4bit"]
    assert len(quantized) == 14 and made.lm_head.weight is made.model.embed_tokens.weight
    with torch.no_grad():
        torch.testing.assert_close(made(tokens).logits, expected, atol=0.1, rtol=0.2)
    assert made.generate(tokens, max_new_tokens=4, do_sample=False, pad_token_id=0).shape == (1, 7)
    assert made.get_memory_footprint() < 0.5 * model.get_memory_footprint()


TRAINING = """
    import torch
    from accel import Accelerator
    from accel.utils import BnbQuantizationConfig, FullyShardedDataParallelPlugin, load_and_quantize_model

    class Adapted(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.low, self.high = torch.nn.Linear(64, 96), torch.nn.Linear(64, 4), torch.nn.Linear(4, 96)

        def forward(self, x):
            return self.layer(x) + self.high(self.low(x))

    torch.manual_seed(0)
    model = torch.nn.Sequential(Adapted(), torch.nn.ReLU(), torch.nn.Linear(96, 2))
    config = BnbQuantizationConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype="fp32",
                                   torch_dtype="fp32", skip_modules=["low", "high", "2"])
    load_and_quantize_model(model, config)
    names, codes = list(model.state_dict()), model[0].layer.weight.clone()
    rows = torch.randn(4, 64)
"""


@pytest.mark.parametrize("plugin", ["None", "FullyShardedDataParallelPlugin()"])
def test_ranks_train_on_quantized_layers(ranks, plugin):
    script = TRAINING + f"""
    accelerator = Accelerator(cpu=True, fsdp_plugin={plugin})
    model = accelerator.prepare(model)
    optimizer = accelerator.prepare(torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.1))
    share = 4 // accelerator.num_processes
    mine = rows[accelerator.process_index * share:][:share]
    for _ in range(4):
        loss = model(mine).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        print(round(accelerator.reduce(loss.detach(), "mean").item(), 4))
    whole = accelerator.get_state_dict(model)
    if accelerator.is_main_process:
        assert list(whole) == names and torch.equal(whole["0.layer.weight"], codes)
    accelerator.save_model(model, "saved")
    accelerator.wait_for_everyone()
    from accel.utils import load_state_dict
    assert set(load_state_dict("saved")) == set(names)
    """
    (alone,) = ranks(script, num_processes=1)
    for printed in ranks(script):
        assert [float(loss) for loss in printed.split()] == pytest.approx([float(loss) for loss in alone.split()], abs=2e-3)
