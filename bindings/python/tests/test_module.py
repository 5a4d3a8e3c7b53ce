"""Models by subclassing, the engine's layers, hooks, state dicts."""

import pytest

import accel
from accel import errors, nn
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

    assert Echo()({"a": [1, 2.5, None, True]}) == {"got": {"a": [1, 2.5, None, True]}, "pair": [1, "two"]}


def test_constructor_must_be_called():
    class Forgets(nn.Module):
        def __init__(self):
            self.layer = nn.Linear(1, 1)

    with pytest.raises(AttributeError, match=r"super\(\).__init__\(\) in Forgets"):
        Forgets()
    with pytest.raises(errors.AlreadyExistsError):
        net = Net()
        net.scale = nn.Parameter(accel.ones(1))


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
    layer.zero_grad()
    assert layer.weight.grad.tolist() == [[0, 0]]


def test_layers():
    x = accel.randn(2, 4)
    for layer in (nn.LayerNorm(4), nn.RMSNorm([4]), nn.Dropout(0.1), nn.BatchNorm1d(4), nn.SiLU(), nn.Tanh(), nn.Sigmoid(), nn.GELU("tanh")):
        assert layer(x).shape == (2, 4)
    assert nn.Conv2d(3, 5, 3, padding=1)(accel.randn(1, 3, 6, 6)).shape == (1, 5, 6, 6)
    assert nn.Embedding(10, 3)(accel.tensor([[1, 2]])).shape == (1, 2, 3)
    assert nn.SelfAttention(4, 2, causal=True)(accel.randn(1, 5, 4)).shape == (1, 5, 4)
    labels = accel.tensor([1, 0])
    assert nn.CrossEntropyLoss()(x, labels).item() == pytest.approx(F.cross_entropy(x, labels).item())
    assert F.softmax(x).sum().item() == pytest.approx(2) and nn.MSELoss()(x, x).item() == 0 and F.relu(x).min().item() >= 0
    gpt = nn.from_config('{"model_type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 8, "n_positions": 16, "vocab_size": 11}')
    assert gpt(accel.tensor([[1, 2, 3]])).shape == (1, 3, 11)
    with pytest.raises(errors.ArgumentError):
        nn.Dropout(2)
