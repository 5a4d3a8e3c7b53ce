# SPDX-License-Identifier: Apache-2.0
"""Models by subclassing, the engine's layers, hooks, state dicts."""

import copy
import dataclasses
import json
import pickle

import pytest

import accel
from accel import capi, errors, nn
from accel.engine import calls
from accel.nn import functional as F


class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.first = nn.Linear(2, width)
        self.scale = nn.Parameter(accel.ones(width))
        self.register_buffer("seen", accel.zeros(1))
        self.last = nn.Sequential(nn.ReLU(), nn.Linear(width, 1, bias=False))

    def forward(self, x, double=False):
        y = self.last(self.first(x) * self.scale)
        return y * 2 if double else y


def test_structure():
    net = Net()
    assert set(dict(net.named_parameters())) == {"first.weight", "first.bias", "scale", "last.1.weight"}
    assert set(net.state_dict()) == set(dict(net.named_parameters())) | {"seen"} and list(dict(net.named_buffers())) == ["seen"]
    assert len(net.parameters()) == 4 and net.num_parameters() == 8 + 4 + 4 + 4 and net.scale.requires_grad
    assert [path for path, _ in net.named_modules()] == ["", "first", "last", "last.0", "last.1"] and len(list(net.children())) == 2
    assert net.first.weight.shape == (4, 2) and net.last[1].weight.shape == (1, 4) and net.get_submodule("last.1") is net.last[1]
    assert "(first): Linear(in_features=2" in repr(net) and repr(nn.GELU()).startswith("GELU")


def test_calls():
    net, x = Net(), accel.ones(3, 2)
    assert net(x).shape == (3, 1) and (net(x, double=True) == net(x) * 2).all() and (net(x=x) == net(x)).all()
    assert net.training and not net.eval().training and not net.last.training and net.train().first.training
    with pytest.raises(TypeError):
        net(x, nothing=1)
    with pytest.raises(NotImplementedError, match="Module has no forward"):
        nn.Module().forward()
    with pytest.raises(errors.StateError):
        nn.Module()(x)
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        net.absent  # noqa: B018


def test_values_of_all_kinds_pass():
    class Echo(nn.Module):
        def forward(self, value):
            return {"got": value, "pair": (1, "two")}

    assert Echo()({"a": [1, 2.5, None, True]}) == {"got": {"a": [1, 2.5, None, True]}, "pair": (1, "two")}


def test_constructor_must_be_called():
    class Forgets(nn.Module):
        def __init__(self):
            self.layer = nn.Linear(1, 1)

    with pytest.raises(AttributeError, match=r"super\(\).__init__\(\) in Forgets"):
        Forgets()


def test_hooks():
    net, calls = nn.Linear(1, 1), []

    def before(module, inputs):
        calls.append(("before", module is net))
        return [inputs[0] * 0]

    def after(module, output):
        calls.append(("after", module is net))
        return output + 100

    net.register_forward_pre_hook(before)
    net.register_forward_hook(after)
    assert net(accel.ones(1, 1)).item() == pytest.approx(100 + net.bias.item()) and calls == [("before", True), ("after", True)]


def test_state_dicts():
    one, other = Net(), Net()
    with accel.no_grad():
        one.scale.copy_(accel.full([4], 3))
    other.load_state_dict(one.state_dict())
    assert all((one.state_dict()[name] == tensor).all() for name, tensor in other.state_dict().items())
    with pytest.raises(errors.ArgumentError):
        other.load_state_dict({"absent": accel.ones(1)})
    with pytest.raises(errors.ShapeError):
        other.load_state_dict(Net(5).state_dict())
    net = Net().to(accel.float64)
    assert net.first.weight.dtype == "float64" and not next(iter(net.requires_grad_(False).parameters())).requires_grad


def test_gradients_and_tying():
    net = nn.ModuleList([nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)])
    net.tie("1.weight", "0.weight")
    assert net.num_parameters() == 4 and len(net) == 2
    layer = nn.Linear(2, 1)
    layer(accel.ones(1, 2)).sum().backward()
    assert layer.weight.grad.tolist() == [[1, 1]]
    layer.zero_grad(set_to_none=False)
    assert layer.weight.grad.tolist() == [[0, 0]]
    layer.zero_grad()
    assert layer.weight.grad is layer.bias.grad is None


def test_layers():
    x = accel.randn(2, 4)
    for layer in (nn.LayerNorm(4), nn.RMSNorm([4]), nn.Dropout(0.1), nn.BatchNorm1d(4), nn.SiLU(), nn.Tanh(), nn.Sigmoid(), nn.GELU("tanh")):
        assert layer(x).shape == (2, 4)
    assert nn.Conv2d(3, 5, 3, padding=1)(accel.randn(1, 3, 6, 6)).shape == (1, 5, 6, 6)
    assert nn.Embedding(10, 3)(accel.tensor([[1, 2]])).shape == (1, 2, 3)
    assert nn.SelfAttention(4, 2, causal=True)(accel.randn(1, 5, 4)).shape == (1, 5, 4)
    assert nn.MixtureOfExperts(4, 6, num_experts=3, experts_per_token=2, balance_rate=0.001)(accel.randn(1, 5, 4)).shape == (1, 5, 4)
    labels = accel.tensor([1, 0])
    assert nn.CrossEntropyLoss()(x, labels).item() == pytest.approx(F.cross_entropy(x, labels).item())
    assert F.softmax(x).sum().item() == pytest.approx(2) and nn.MSELoss()(x, x).item() == 0 and F.relu(x).min().item() >= 0
    gpt = nn.from_config('{"model_type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 8, "n_positions": 16, "vocab_size": 11}')
    assert gpt(accel.tensor([[1, 2, 3]])).shape == (1, 3, 11)
    heard = []
    tokens = accel.tensor([[1, 2, 3]])
    whole = gpt.eval().generate(tokens, max_new_tokens=4)
    assert whole["tokens"].shape == (1, 7) and whole["log_probabilities"].shape == (1, 4)
    assert gpt.generate(tokens, max_new_tokens=4, on_tokens=lambda added: heard.append(added) or len(heard) < 2)["tokens"].shape == (1, 5)
    assert gpt.generate(tokens, max_new_tokens=4, stop_tokens=[heard[0].item()])["tokens"].shape == (1, 4)
    with pytest.raises(ZeroDivisionError):
        gpt.generate(tokens, on_tokens=lambda added: 1 / 0)
    assert nn.from_config({"model_type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 8, "n_positions": 16, "vocab_size": 5})(accel.tensor([[1]])).shape == (1, 1, 5)
    with pytest.raises(TypeError, match="got a NoneType; expected a mapping"):
        nn.from_config(None)
    with pytest.raises(errors.ArgumentError):
        nn.Dropout(2)


# Regression: a part of a model could not be replaced: `model.head = nn.Linear(...)`, `layer.weight = nn.Parameter(...)`.
def test_chains_of_forwards():
    class Both(nn.Module):
        def forward(self, x):
            return {"x": x, "square": x * x}

    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(accel.ones(2) * 3)

        def forward(self, both):
            return (both["x"] + both["square"]) * self.scale

    first, x = nn.Linear(2, 2), accel.ones(3, 2)
    chain = nn.Pipeline(first, Both(), Sum())
    y = first(x)
    assert (chain(x) == (y + y * y) * 3).all() and len(chain) == 3 and chain[0] is first
    assert set(dict(chain.named_parameters())) == {"0.weight", "0.bias", "2.scale"}
    chain(x).sum().backward()
    assert chain[2].scale.grad is not None and first.weight.grad is not None
    with pytest.raises(errors.ArgumentError, match="n_parts is 0"):
        nn.Pipeline()


def test_parts_are_exchanged():
    net = Net()
    names = list(net.state_dict())
    net.first = nn.Linear(2, 4)
    net.scale = nn.Parameter(accel.full([4], 3.0))
    net.last[1].weight = nn.Parameter(accel.full([1, 4], 2.0), requires_grad=False)
    net.seen = accel.ones(1)
    assert list(net.state_dict()) == names and net.state_dict()["scale"].tolist() == [3] * 4 and net.state_dict()["seen"].tolist() == [1]
    assert [name for name, parameter in net.named_parameters() if parameter.requires_grad] == ["scale", "first.weight", "first.bias"]
    expected = ((net.first(accel.ones(1, 2)) * 3).relu() * 2).sum()
    assert net(accel.ones(1, 2)).item() == pytest.approx(expected.item())
    net.last = nn.Linear(4, 7)
    assert net(accel.ones(1, 2)).shape == (1, 7) and [name for name, _ in net.named_children()] == ["first", "last"]


def test_parameters_are_shared_by_assignment():
    model = nn.ModuleList([nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)])
    model[1].weight = model[0].weight
    assert model.num_parameters() == 15 and list(dict(model.named_parameters())) == ["0.weight"]
    model[1](model[0](accel.tensor([2]))).sum().backward()
    assert model[0].weight.grad is not None and model[1].weight.data_ptr() == model[0].weight.data_ptr()
    assert copy.deepcopy(model).num_parameters() == 15
    with pytest.raises(TypeError, match="expected a Parameter"):
        model[1].weight = accel.ones(5, 3)


# Regression: `model.head = None` and `del model.head` left the part in `state_dict()`.
def test_parts_are_taken_away():
    net = Net()
    net.last = None
    del net.scale
    assert net.last is None and not hasattr(net, "scale") and list(net.state_dict()) == ["seen", "first.weight", "first.bias"]
    assert [name for name, _ in net.named_children()] == ["first"]
    net.last = nn.Linear(4, 1)
    net.first = nn.Parameter(accel.ones(2))  # of another kind
    assert set(dict(net.named_parameters())) == {"first", "last.weight", "last.bias"}
    for wrong in (lambda: setattr(net, "first", 3), lambda: setattr(net, "last", "text"), lambda: setattr(net, "seen", 1.0)):
        with pytest.raises(TypeError, match="cannot become"):
            wrong()
    layer = nn.Linear(2, 2)
    with pytest.raises(errors.UnsupportedError, match="as a whole"):
        layer.bias = None
    sequential = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    setattr(sequential, "0", nn.Linear(2, 3))
    assert sequential(accel.ones(1, 2)).shape == (1, 3) and sequential[0].weight.shape == (3, 2)


@dataclasses.dataclass
class Answer:
    loss: object
    more: object = None


class Thing:
    """An object of the program."""


# Regression: `forward()` took no `*` and `**`, and no objects of the program.
def test_arguments_and_results_of_all_kinds(accelerator):
    thing = Thing()

    class Takes(nn.Module):
        def forward(self, x, *others, scale=1, extra=None, **more):
            return Answer(x * scale, {"others": list(others), "extra": extra, **more})

    for model in (Takes(), accelerator.prepare(Takes()), nn.Sequential(Takes())):
        given = {} if isinstance(model, nn.Sequential) else {"scale": 3, "extra": thing, "mask": accel.zeros(1)}
        answer = model(accel.ones(1), thing, [thing, 2], **given)
        assert type(answer) is Answer and answer.loss.item() == given.get("scale", 1)
        assert answer.more["others"] == [thing, [thing, 2]] and answer.more["others"][0] is thing
        assert not given or answer.more["extra"] is thing and answer.more["mask"].item() == 0
    seen = []
    model = Takes()
    model.register_forward_pre_hook(lambda module, inputs: seen.append(inputs))
    model.register_forward_hook(lambda module, answer: Answer(answer.loss * 2, "hooked"))
    answer = model(accel.ones(1), scale=4)
    assert answer.loss.item() == 8 and answer.more == "hooked" and [len(inputs) for inputs in seen] == [1]

    class Fails(nn.Module):
        def forward(self, x, thing):
            raise KeyError("mine")

    with pytest.raises(KeyError):
        Fails()(accel.ones(1), thing)
    assert calls._objects.objects == []


# Regression: `forward()` could not return a dataclass.
def test_gradients_pass_through_dataclasses():
    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 1)

        def forward(self, x):
            return Answer(loss=self.layer(x).sum())

    model = Loss()
    model(accel.ones(1, 2)).loss.backward()
    assert model.layer.weight.grad.tolist() == [[1, 1]]


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)])
        self.norm, self.drop = nn.BatchNorm1d(2), nn.Dropout(0.5)
        self.head = nn.Sequential(nn.Linear(2, 2), nn.GELU("tanh"))
        self.register_buffer("scratch", accel.ones(2), persistent=False)
        self.settings = {"width": 2}
        self.tie("parts.1.weight", "parts.0.weight")

    def forward(self, x):
        return self.head(self.norm(self.parts[1](self.parts[0](x))))


# Regression: models could not be copied or pickled.
def test_copies_of_models(accelerator):
    model = Tied().eval()
    model.head[0].bias.requires_grad = False
    with accel.no_grad():
        model.scratch.copy_(accel.tensor([5.0, 6.0]))
    x = accel.randn(3, 2)
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), copy.deepcopy(accelerator.prepare(model))):
        assert type(copied) is Tied and (copied(x) == model(x)).all() and not copied.training and copied.scratch.tolist() == [5, 6]
        assert copied.num_parameters() == model.num_parameters() and not copied.head[0].bias.requires_grad
        assert copied.settings == {"width": 2}
        assert list(copied.state_dict()) == list(model.state_dict())
        copied.parts[0].weight.detach().zero_()
        assert copied.parts[1].weight.sum().item() == 0 and model.parts[0].weight.abs().sum().item() > 0
    layer = copy.deepcopy(nn.Linear(2, 3).to(accel.bfloat16))
    assert layer.weight.dtype == "bfloat16" and layer.weight.shape == (3, 2)
    hooked = nn.Linear(1, 1)
    hooked.register_forward_hook(lambda module, output: output * 0)
    assert copy.deepcopy(hooked)(accel.ones(1, 1)).item() == 0
    gpt = nn.from_config('{"model_type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 8, "n_positions": 16, "vocab_size": 11}').eval()
    assert (copy.deepcopy(gpt)(accel.tensor([[1, 2]])) == gpt(accel.tensor([[1, 2]]))).all()


def test_hooks_are_removed():
    model = nn.Linear(2, 1)
    seen = []
    first = model.register_forward_pre_hook(lambda module, inputs: seen.append("before"))
    second = model.register_forward_hook(lambda module, output: seen.append("after"))
    model(accel.ones(1, 2))
    first.remove()
    first.remove()
    model(accel.ones(1, 2))
    copy.deepcopy(model)(accel.ones(1, 2))
    second.remove()
    model(accel.ones(1, 2))
    assert seen == ["before", "after", "after", "after"]


def test_model_hooks_run_as_in_the_reference():
    from accel.hooks import ModelHook, add_hook_to_module, remove_hook_from_module, remove_hook_from_submodules

    seen = []

    class Recorded(ModelHook):
        def __init__(self, name):
            self.name = name

        def init_hook(self, module):
            seen.append(f"init {self.name}")
            return module

        def pre_forward(self, module, x, scale=1):
            seen.append(f"pre {self.name}")
            return (x + 1,), {"scale": scale}

        def post_forward(self, module, output):
            seen.append(f"post {self.name}")
            return output * 2

        def detach_hook(self, module):
            seen.append(f"detach {self.name}")
            return module

    class Ten(nn.Module):
        def forward(self, x, *, scale=1):
            return x * 10 * scale

    def call(**named):
        result, happened = model(accel.ones(1), **named).item(), list(seen)
        seen.clear()
        return result, happened

    model = Ten()
    add_hook_to_module(model, Recorded("a"))
    assert call() == (40, ["init a", "pre a", "post a"])
    assert call(scale=3)[0] == 120
    add_hook_to_module(model, Recorded("b"), append=True)
    assert call() == (120, ["detach a", "init a", "init b", "pre a", "pre b", "post a", "post b"])
    add_hook_to_module(model, Recorded("c"))
    assert call() == (40, ["init c", "pre c", "post c"])
    assert copy.deepcopy(model)(accel.ones(1)).item() == 10
    remove_hook_from_module(model)
    assert call() == (10, ["detach c"])
    hook = Recorded("d")
    hook.no_grad = True
    add_hook_to_module(model, hook)
    x = accel.ones(1)
    x.requires_grad = True
    assert not model(x).requires_grad
    seen.clear()
    remove_hook_from_submodules(nn.Sequential(model))
    assert call() == (10, ["detach d"])
    assert model(x).requires_grad


def test_hooks_of_the_backward():
    layer, seen = nn.Linear(2, 1, bias=False), []
    layer.register_full_backward_pre_hook(lambda module, gradients: seen.append(gradients[0].item()) or [gradients[0] * 3])
    behind = layer.register_full_backward_hook(lambda module, gradients: seen.append(len(gradients)))
    x = accel.tensor([[1.0, 1.0]], requires_grad=True)
    layer(x).sum().backward()
    assert seen == [1.0, 1] and layer.weight.grad.tolist() == [[3.0, 3.0]] and x.grad.tolist() == (layer.weight * 3).tolist()
    behind.remove()
    layer(accel.ones(1, 2)).sum().backward()
    assert seen == [1.0, 1, 1.0]


def test_device_maps_of_the_engine():
    net = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 8, bias=False))
    options = capi.accel_device_map_options_t()
    assert capi.accel_compute_module_sizes(net.handle, options, 0)["0.weight"] == 64
    memory = capi.accel_get_max_memory({"cpu": "1KiB", 0: 150})
    assert list(memory.items()) == [(0, 150), ("cpu", 1024)]
    device_map, explanation = capi.accel_infer_auto_device_map(net.handle, memory, options)
    assert device_map == {"": "cpu"} and explanation["decisions"][0]["decision"] == "next_device"
    options.dtype, options.optimal_packing = "float16", 1
    assert capi.accel_infer_auto_device_map(net.handle, memory, options)[0] == {"": 0}
    assert capi.accel_resolve_device_map(net.handle, {"0": 0, "1": "disk"}, None, None) == {"0": 0, "1": "disk"}
    with pytest.raises(errors.NotFoundError, match="the most similar path is '1.weight'"):
        capi.accel_resolve_device_map(net.handle, {"1.weigth": 0, "1": "disk"}, None, None)


def test_sizes_and_memory_of_training():
    net = nn.Sequential(nn.Linear(64, 64, bias=False), nn.Linear(64, 32, bias=False))
    layer = 64 * 64 * 4
    assert capi.accel_calculate_maximum_sizes(net.handle) == {"total": 1.5 * layer, "largest": layer, "names": ["0"]}
    options = capi.accel_estimate_memory_options_t()
    options.activation_bytes = 10
    estimate = capi.accel_estimate_memory(net.handle, None, options)
    assert estimate["parameters"] == estimate["gradients"] == 1.5 * layer and estimate["peak"] == 3 * layer + 10
    assert estimate["phase"] == "backward" and estimate["step"] == 3 * layer
    options.num_processes = 0
    with pytest.raises(errors.ArgumentError, match="num_processes is 0"):
        capi.accel_estimate_memory(net.handle, None, options)


def test_adapters(tmp_path):
    config = {"model_type": "llama", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 6, "num_hidden_layers": 2, "num_attention_heads": 2}
    model, tokens = nn.from_config(config).eval(), accel.tensor([[1, 5, 2]])

    def logits(of=model):
        with accel.no_grad():
            return of(tokens).tolist()[0][-1]

    def near(numbers):
        return pytest.approx(numbers, abs=1e-6)

    plain = logits()
    model.add_adapter("one", rank=2, alpha=4, init="random", target_modules=("q_proj", "v_proj"))
    one = logits()
    model.add_adapter("two", rank=2, init="random", target_modules=".*layers.1.*up_proj", use_dora=True)
    two = logits()
    assert plain != near(one) and one != near(two) and two != near(plain)
    assert [name for name, parameter in model.named_parameters() if parameter.requires_grad] == [
        f"model.layers.1.mlp.up_proj.{part}.two.weight" for part in ("lora_A", "lora_B", "lora_magnitude_vector")]
    told = model.adapters()
    assert list(told) == ["one", "two"] and not told["one"]["active"] and told["two"]["layers"] == ["model.layers.1.mlp.up_proj"]
    assert told["one"]["config"]["lora_alpha"] == 4 and not told["two"]["merged"]
    with accel.use_adapters("one"):
        assert logits() == near(one)
        with accel.use_adapters():
            assert logits() == near(plain)
    model.activate_adapters("one")
    assert logits() == near(one)
    accelerator = accel.Accelerator(cpu=True)
    accelerator.save_adapter(model, "one", tmp_path / "adapter")
    other = nn.from_config(config).eval()
    other.load_state_dict({name: tensor for name, tensor in model.state_dict().items() if "lora" not in name})
    other.load_adapter("again", tmp_path / "adapter")
    assert logits(other) == near(one)
    model.merge_adapters()
    assert model.adapters()["one"]["merged"]
    with pytest.raises(errors.StateError, match="is merged"):
        model.remove_adapter("one")
    model.unmerge_adapters()
    model.remove_adapter("one")
    with pytest.raises(errors.NotFoundError, match="no adapter 'one'"):
        model.activate_adapters("one")
    with pytest.raises(TypeError, match="no setting 'r'"):
        model.add_adapter("three", r=4)


def test_quantized_models(tmp_path):
    config = {"model_type": "llama", "vocab_size": 11, "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    model, tokens = nn.from_config(config).eval(), accel.tensor([[1, 5, 2]])

    def logits(of):
        with accel.no_grad():
            return [number for row in of(tokens).tolist()[0] for number in row]

    plain = logits(model)
    for folder in ("source", "copy"):
        (tmp_path / folder).mkdir()
    (tmp_path / "source" / "config.json").write_text(json.dumps(config))
    accel.Accelerator(cpu=True).save_model_folder(model, tmp_path / "source", tmp_path / "copy")
    opened = nn.from_folder(tmp_path / "copy", {"kind": "nf4", "has_double_quantization": True, "compute_dtype": accel.float32}).eval()
    assert "model.layers.0.mlp.up_proj.weight_nested_absmax" in opened.state_dict()
    assert logits(nn.from_folder(tmp_path / "copy").eval()) == pytest.approx(plain, abs=1e-6)
    names = model.quantize("nf4", has_double_quantization=True, compute_dtype="float32", skip_modules=("lm_head",))
    assert len(names) == 7 and "model.layers.0.self_attn.q_proj" in names
    assert logits(model) == pytest.approx(logits(opened), abs=1e-6) and logits(model) != pytest.approx(plain, abs=1e-6)
    assert logits(model) == pytest.approx(plain, abs=0.5)
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(opened)), copy.deepcopy(copy.deepcopy(model))):
        assert logits(copied) == pytest.approx(logits(opened), abs=1e-6) and "model.layers.0.mlp.up_proj.weight_nested_absmax" in copied.state_dict()
    part = nn.from_config(config)
    part.get_submodule("model.layers.0").quantize("int8", skip_modules=[])
    with pytest.raises(TypeError, match="cannot be copied.*quantize.. of the whole model"):
        copy.deepcopy(part)
    model.add_adapter("one", rank=2, target_modules=["q_proj"])
    assert {name.split(".")[-3] for name, parameter in model.named_parameters() if parameter.requires_grad} == {"lora_A", "lora_B"}
    assert "model.layers.0.mlp.up_proj.SCB" in nn.from_folder(tmp_path / "copy", "int8").state_dict()
    with pytest.raises(ValueError, match="int3"):
        model.quantize("int3")
    with pytest.raises(TypeError, match="no setting 'bits'"):
        model.quantize(bits=4)
    with pytest.raises(TypeError, match="quantization is a int"):
        nn.from_folder(tmp_path / "copy", 4)
    with pytest.raises(errors.ArgumentError, match="has no kind"):
        nn.from_folder(tmp_path / "copy", {"group": 64})
