# SPDX-License-Identifier: Apache-2.0
"""Models of torch in the engine: calls, gradients over the ranks, precision, accumulation, checkpoints, copies."""

import collections
import copy
import dataclasses
import gc
import pickle
import weakref

import pytest

torch = pytest.importorskip("torch", reason="there is no torch")

import accel  # noqa: E402
from accel.training.torch_model import DistributedModel, forward_of  # noqa: E402

Pair = collections.namedtuple("Pair", "first second")


@dataclasses.dataclass
class Output:
    loss: torch.Tensor
    logits: torch.Tensor
    name: str = "output"


class Net(torch.nn.Module):
    def __init__(self, makes=lambda loss, logits: logits):
        super().__init__()
        self.hidden = torch.nn.Linear(4, 8)
        self.output = torch.nn.Linear(8, 1)
        self.register_buffer("calls", torch.zeros(()))
        self.makes = makes
        self.width = 8

    def forward(self, x, *, scale=1.0, labels=None):
        self.calls += 1
        logits = self.output(torch.tanh(self.hidden(x))) * scale
        loss = None if labels is None else (logits - labels).square().mean()
        return self.makes(loss, logits)


def test_a_model_alone_stays_the_same_object(accelerator):
    net = Net()
    prepared = accelerator.prepare(net)
    assert prepared is net and isinstance(prepared, torch.nn.Module) and prepared.width == 8
    x = torch.randn(3, 4)
    expected = copy.deepcopy(net)(x)
    assert torch.equal(prepared(x), expected)
    assert list(prepared.state_dict()) == ["hidden.weight", "hidden.bias", "output.weight", "output.bias", "calls"][-1:] + [
        "hidden.weight", "hidden.bias", "output.weight", "output.bias"]
    assert accelerator.prepare(prepared) is prepared
    assert accelerator.unwrap_model(prepared, keep_fp32_wrapper=False) is net and forward_of(net) is None


@pytest.mark.parametrize("makes", [lambda loss, logits: (loss, logits), lambda loss, logits: {"loss": loss, "logits": [logits]},
                                   lambda loss, logits: Pair(loss, logits), lambda loss, logits: Output(loss, logits)])
def test_outputs_keep_their_classes(accelerator, makes):
    net = accelerator.prepare(Net(makes))
    output = net(torch.ones(2, 4), scale=0.5, labels=torch.zeros(2, 1))
    expected = makes(torch.ones(()), torch.ones(()))
    assert type(output) is type(expected)
    loss = output[0] if isinstance(output, tuple) else output["loss"] if isinstance(output, dict) else output.loss
    accelerator.backward(loss)
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_gradients_are_those_of_torch(accelerator):
    net = Net()
    other, x = copy.deepcopy(net), torch.randn(5, 4)
    other(x).square().sum().backward()
    net = accelerator.prepare(net)
    accelerator.backward(net(x).square().sum())
    for mine, theirs in zip(net.parameters(), other.parameters()):
        assert torch.equal(mine.grad, theirs.grad)


def test_what_forward_and_backward_raise_comes_out(accelerator):
    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(_context, x):
            return x.clone()

        @staticmethod
        def backward(_context, _gradient):
            raise KeyError("in backward")

    class Model(torch.nn.Linear):
        def forward(self, x, fails=False):
            if fails:
                raise LookupError("in forward")
            return Failing.apply(super().forward(x))

    model = accelerator.prepare(Model(2, 1))
    with pytest.raises(LookupError, match="in forward"):
        model(torch.ones(1, 2), fails=True)
    loss = model(torch.ones(1, 2)).sum()
    with pytest.raises(KeyError, match="in backward"):
        accelerator.backward(loss)
    assert model(torch.ones(1, 2)).shape == (1, 1)


def test_precision(accelerator):
    accelerator = accel.Accelerator(cpu=True) if accelerator is None else accelerator
    accel.PartialState._reset_state()
    accelerator = accel.Accelerator(cpu=True, mixed_precision="bf16")
    seen = []

    class Model(torch.nn.Linear):
        def forward(self, x):
            output = super().forward(x)
            seen.append(output.dtype)
            return output

    model = accelerator.prepare(Model(4, 2))
    output = model(torch.ones(1, 4))
    assert seen == [torch.bfloat16] and output.dtype == torch.float32
    accelerator.backward(output.sum())
    assert model.weight.grad.dtype == torch.float32
    assert accelerator.unwrap_model(model)(torch.ones(1, 4)).dtype == torch.float32 and seen[-1] == torch.bfloat16
    assert accelerator.unwrap_model(model, keep_fp32_wrapper=False)(torch.ones(1, 4)).dtype == torch.float32 and seen[-1] == torch.float32
    accelerator.free_memory()


# Regression: `get_state_dict()` of a model of torch took its prepared forward away: training went on without the precision, or
# `accumulate()` refused it.
@pytest.mark.parametrize("unwrap", [True, False])
def test_reading_the_weights_changes_nothing(tmp_path, unwrap):
    accelerator = accel.Accelerator(cpu=True, mixed_precision="bf16")
    computed = []

    class Model(torch.nn.Linear):
        def forward(self, x):
            output = super().forward(x)
            computed.append(output.dtype)
            return output

    net = Model(4, 2)
    model = accelerator.prepare(net)
    forward = forward_of(model)
    assert list(accelerator.get_state_dict(model, unwrap=unwrap)) == ["weight", "bias"]
    accelerator.save_model(model, tmp_path)
    assert accelerator.unwrap_model(model) is model and forward_of(model) is forward is not None
    with accelerator.accumulate(model):
        accelerator.backward(model(torch.ones(1, 4)).sum())
    with accelerator.no_sync(model):
        model(torch.ones(1, 4))
    assert computed == [torch.bfloat16] * 2
    accelerator.free_memory()


def test_training_and_evaluation_modes(accelerator):
    model = accelerator.prepare(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5)))
    model.eval()
    x = torch.ones(64, 2)
    assert torch.equal(model(x), model(x)) and not model[1].training
    model.train()
    assert (model(x) == 0).any()


def test_tied_shared_and_frozen_parts(accelerator):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(5, 4)
            self.block = torch.nn.Linear(4, 4)
            self.again = self.block
            self.head = torch.nn.Linear(4, 5, bias=False)
            self.head.weight = self.embedding.weight
            self.block.bias.requires_grad_(False)
            self.register_parameter("nothing", None)

        def forward(self, tokens):
            return self.head(self.again(self.block(self.embedding(tokens))))

    model = accelerator.prepare(Model())
    accelerator.backward(model(torch.tensor([1, 2])).sum())
    assert model.head.weight.grad is model.embedding.weight.grad is not None
    assert model.block.bias.grad is None and not model.block.bias.requires_grad


def test_wrong_models(accelerator):
    with pytest.raises(ValueError, match="meta.*expected weights"):
        accelerator.prepare(torch.nn.Linear(2, 2, device="meta"))
    with pytest.raises(TypeError, match="prepare.. got a builtins.function"):
        accelerator.prepare(test_wrong_models)
    with pytest.raises(TypeError, match="prepare.. got a torch.utils.data.dataset.TensorDataset; expected models"):
        accelerator.prepare(torch.utils.data.TensorDataset(torch.ones(2)))
    with pytest.raises(ValueError, match="Linear is not prepared; expected what prepare.. returned"):
        with accelerator.accumulate(torch.nn.Linear(2, 2)):
            pass
    assert accelerator.prepare(None, 3, "text") == (None, 3, "text")


def test_copies_and_pickles_belong_to_no_job(accelerator):
    model = accelerator.prepare(torch.nn.Linear(3, 2))
    x = torch.ones(1, 3)
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert type(copied) is torch.nn.Linear and copied is not model and forward_of(copied) is None
        assert torch.equal(copied(x), model(x))
        with torch.no_grad():
            copied.weight.zero_()
        assert not torch.equal(copied(x), model(x))


def test_prepared_models_are_collected():
    accelerator = accel.Accelerator(cpu=True)
    gone = []
    for _ in range(500):
        model = torch.nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        prepared, optimizer = accelerator.prepare(model, optimizer)
        accelerator.backward(prepared(torch.ones(1, 3)).sum())
        optimizer.step()
        gone += [weakref.ref(model), weakref.ref(optimizer)]
        accelerator.free_memory()
    del model, prepared, optimizer
    gc.collect()
    assert [reference() for reference in gone] == [None] * len(gone)


def test_reference_counts_stay(accelerator):
    import sys

    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer = accelerator.prepare(model, optimizer)
    x = torch.ones(1, 3)

    def step():
        accelerator.backward(model(x).sum())
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(5):
        step()
    counts = [sys.getrefcount(thing) for thing in (model, optimizer, x, model.weight)]
    for _ in range(1000):
        step()
    assert [sys.getrefcount(thing) for thing in (model, optimizer, x, model.weight)] == counts


def test_parts_that_change_after_prepare(accelerator, tmp_path):
    class Model(torch.nn.Linear):
        def __init__(self):
            super().__init__(2, 1)
            self.register_buffer("latest", torch.zeros(1, 2))

        def forward(self, x):
            self.latest = x * 1.0
            return super().forward(x)

    model = accelerator.prepare(Model())
    model.weight = torch.nn.Parameter(torch.tensor([[3.0, 4.0]]))
    assert model(torch.tensor([[1.0, 10.0]])).item() == pytest.approx(43 + model.bias.item())
    accelerator.save_state(tmp_path / "state")
    with torch.no_grad():
        model.weight.zero_()
    model.latest = torch.zeros(1, 2)
    accelerator.load_state(tmp_path / "state")
    assert model.weight.tolist() == [[3, 4]] and model.latest.tolist() == [[1, 10]]


def test_hooks_of_torch_run(accelerator):
    model = torch.nn.Linear(2, 1)
    seen = []
    model.register_forward_pre_hook(lambda module, args: seen.append("before"))
    model.register_forward_hook(lambda module, args, output: seen.append("after"))
    model.register_full_backward_hook(lambda module, grad_input, grad_output: seen.append("backward"))
    model = accelerator.prepare(model)
    accelerator.backward(model(torch.ones(1, 2, requires_grad=True)).sum())
    assert seen == ["before", "after", "backward"]


def test_compiled_models(accelerator):
    compiled = torch.compile(torch.nn.Linear(2, 1), backend="eager")
    prepared = accelerator.prepare(compiled)
    assert torch.equal(prepared(torch.ones(1, 2)), compiled._orig_mod(torch.ones(1, 2)))
    after = torch.compile(accelerator.prepare(torch.nn.Linear(2, 1)), backend="eager")
    accelerator.backward(after(torch.ones(1, 2)).sum())
    assert after.weight.grad is not None
    assert accelerator.unwrap_model(after) is after
    assert accelerator.unwrap_model(after, keep_torch_compile=False) is after._orig_mod


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device of CUDA")
def test_compilation_brings_no_device():
    """The compiler puts a guard in the place of CUDA's, which counts devices that are not there."""
    torch._C._ensureCUDADeviceGuardSet()
    assert str(accel.PartialState().device) == "cpu" and not accel.utils.is_cuda_available()


def test_checkpoints(accelerator, tmp_path):
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)

    def step():
        accelerator.backward(model(torch.ones(1, 3)).sum())
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()

    for _ in range(3):
        step()
    accelerator.save_state(tmp_path / "state")
    step()
    expected = [parameter.detach().clone() for parameter in model.parameters()]
    rates = scheduler.get_last_lr()
    accelerator.load_state(tmp_path / "state")
    assert optimizer.state[model.weight]["step"] == 3 and scheduler.last_epoch == 3
    step()
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(model.parameters(), expected)) and scheduler.get_last_lr() == rates
    accelerator.save_model(model, tmp_path / "model")
    assert (tmp_path / "model" / "model.safetensors").exists()


DISTRIBUTED = """
    import torch
    from accel import Accelerator
    from accel.handlers import DistributedDataParallelKwargs
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2, kwargs_handlers=[
        DistributedDataParallelKwargs(find_unused_parameters=True)])
    rank = accelerator.process_index
    torch.manual_seed(rank)
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
            self.unused = torch.nn.Linear(4, 4)
            self.norm = torch.nn.BatchNorm1d(4)
        def forward(self, x):
            return {"out": self.second(self.norm(self.first(x)))}
"""


def test_gradients_are_averaged_over_the_ranks(ranks):
    printed = ranks(DISTRIBUTED + """
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(net, optimizer)
    assert type(model).__name__ == "DistributedModel" and model.module is net and model.first is net.first
    assert list(model.state_dict())[0] == "module.first.weight"
    sums = []
    for step in range(6):
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(10 * step + rank))
        with accelerator.accumulate(model):
            accelerator.backward(model(x)["out"].square().mean())
            if step % 2 == 0:
                own = accelerator.gather(net.first.weight.grad.flatten()[:1])
                assert own[0] != own[1]
            else:
                both = accelerator.gather(net.first.weight.grad.flatten()[:1])
                assert both[0] == both[1] and net.unused.weight.grad is None
            optimizer.step()
            optimizer.zero_grad()
    with accelerator.no_sync(model):
        accelerator.backward(model(torch.ones(2, 4) * (rank + 1))["out"].sum())
    assert len(set(accelerator.gather(net.second.bias.grad + rank).tolist())) == 2
    try:
        net.second.weight = torch.nn.Parameter(torch.ones(1, 4))
    except RuntimeError as error:
        assert "the parameter 'weight' of a Linear is set after prepare()" in str(error)
    weights = accelerator.gather(torch.cat([p.detach().flatten() for p in net.parameters()])[None])
    print(torch.equal(weights[0], weights[1]))
    """)
    assert printed == ["True\n"] * 2


def test_uneven_inputs(ranks):
    printed = ranks(DISTRIBUTED + """
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(net, optimizer)
    with accelerator.join_uneven_inputs([model]):
        for step in range(3 + 2 * rank):
            accelerator.backward(model(torch.ones(2, 4) * (rank + 1 + step))["out"].sum())
            optimizer.step()
            optimizer.zero_grad()
    weights = accelerator.gather(net.second.weight.detach())
    print(torch.equal(weights[0], weights[1]))
    """)
    assert printed == ["True\n"] * 2


def test_a_program_that_uses_torch_distributed_is_not_disturbed(ranks):
    printed = ranks("""
    import os, torch
    import torch.distributed as dist
    from accel import Accelerator
    store = dist.FileStore(os.path.join(os.getcwd(), "store"), 2)
    dist.init_process_group("gloo", store=store, rank=int(os.environ["RANK"]), world_size=2)
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(torch.nn.Linear(2, 1))
    accelerator.backward(model(torch.ones(1, 2) * accelerator.process_index).sum())
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    print(tensor.item(), model.module.weight.grad[0, 0].item())
    accelerator.end_training()
    assert dist.is_initialized()
    dist.destroy_process_group()
    """)
    assert printed == ["2.0 0.5\n"] * 2


def test_transformers_outputs(accelerator):
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=1, n_head=2)
    model = accelerator.prepare(transformers.GPT2LMHeadModel(config))
    tokens = torch.randint(0, 32, (2, 8))
    output = model(input_ids=tokens, labels=tokens)
    assert type(output).__name__ == "CausalLMOutputWithCrossAttentions" and output.logits.shape == (2, 8, 32)
    accelerator.backward(output.loss)
    assert model.transformer.wte.weight.grad is not None
    assert isinstance(model, transformers.GPT2LMHeadModel) and not isinstance(model, DistributedModel)


def test_a_distributed_model_has_what_programs_read_of_torch_s(ranks):
    """The settings of the exchange, and the device; an attribute of the model inside goes first."""
    for printed in ranks("""
        import torch
        from accel import Accelerator, DistributedDataParallelKwargs

        class Net(torch.nn.Linear):
            dim = "of the model"

        accelerator = Accelerator(cpu=True, kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True, bucket_cap_mb=2)])
        model = accelerator.prepare(Net(2, 1))
        assert model.find_unused_parameters is True and model.static_graph is False and model.broadcast_buffers is True
        assert model.bucket_bytes_cap == 2 * 1024 * 1024 and model.dim == "of the model"
        assert model.device == torch.device("cpu") and model.device_type == "cpu" and model.device_ids is None and model.output_device is None
        assert model.parameters_to_ignore == set() and not model.is_multi_device_module and model.require_backward_grad_sync
        model.require_backward_grad_sync = True
        for wrong in (lambda: setattr(model, "require_backward_grad_sync", False), lambda: model.join(throw_on_early_termination=True)):
            try:
                wrong()
                raise AssertionError
            except NotImplementedError as error:
                assert "expected" in str(error)
        with model.join(enable=False):
            pass
        with model.join():
            for batch in range(1 + accelerator.process_index):
                accelerator.backward(model(torch.ones(1, 2)).sum())
        print(model.weight.grad.tolist())
        try:
            model.no_such_name
        except AttributeError as error:
            print(error)
    """):
        assert printed == "[[1.0, 1.0]]\n'Net' object has no attribute 'no_such_name'\n", printed
