# SPDX-License-Identifier: Apache-2.0
"""Models of torch under fp8: which layers compute in 8 bits, converted layers, several ranks."""

import copy
import pickle

import pytest

torch = pytest.importorskip("torch", reason="there is no torch")

import accel  # noqa: E402
from accel import Accelerator  # noqa: E402
from accel.utils import (AORecipeKwargs, FP8RecipeKwargs, TERecipeKwargs, apply_fp8_autowrap, contextual_fp8_autocast, convert_model,  # noqa: E402
                         convert_model_to_fp8_ao, has_ao_layers, has_transformer_engine_layers)


class Toy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(16, 32)
        self.first = torch.nn.Linear(32, 64)
        self.block = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.LayerNorm(64), torch.nn.Linear(64, 24), torch.nn.Linear(24, 64))
        self.last = torch.nn.Linear(64, 32)

    def forward(self, ids):
        return self.last(self.block(torch.relu(self.first(self.embedding(ids)))))


def losses_of(accelerator, steps=10):
    torch.manual_seed(0)
    model = Toy()
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=1e-3))
    ids, goal = torch.arange(16).repeat(2), torch.randn(32, 32)
    losses = []
    for _ in range(steps):
        loss = (model(ids) - goal).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, model


def test_models_train_by_each_recipe():
    expected, _ = losses_of(Accelerator(cpu=True, mixed_precision="bf16"))
    for recipe, layers in ((AORecipeKwargs(), ["block.0"]), (TERecipeKwargs(), ["first", "block.0", "last"])):
        accel.PartialState._reset_state()
        accelerator = Accelerator(cpu=True, mixed_precision="fp8", kwargs_handlers=[recipe])
        losses, model = losses_of(accelerator)
        assert losses[-1] < losses[0] and losses[-1] == pytest.approx(expected[-1], rel=0.05)
        described = accelerator.describe_fp8(model)
        assert [name for name in described["layers"] if not name.startswith("block.") or name == "block.0"] == layers, described
        assert "embedding" not in described["layers"] and "block.2" in described["skipped"]
        assert has_ao_layers(model) is (layers == ["block.0"]) and has_transformer_engine_layers(model) is not has_ao_layers(model)


def test_a_function_chooses_layers():
    asked = {}

    def wanted(module, name):
        asked[name] = module
        return name == "first"

    accelerator = Accelerator(cpu=True, mixed_precision="fp8", kwargs_handlers=[AORecipeKwargs(module_filter_func=wanted)])
    model = accelerator.prepare(Toy())
    assert accelerator.describe_fp8(model)["layers"] == ["first"] and has_ao_layers(model)
    assert asked["first"] is model.first and all(isinstance(module, torch.nn.Linear) for module in asked.values())


def test_a_prepared_model_of_the_reference_s_test_has_its_layers():
    accelerator = Accelerator(cpu=True, mixed_precision="fp8", kwargs_handlers=[TERecipeKwargs()])
    loader = torch.utils.data.DataLoader(torch.randn(10, 32), batch_size=2)
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.LayerNorm(32, bias=False), torch.nn.Linear(32, 16))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.1)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    assert accelerator.fp8_enabled and has_transformer_engine_layers(model) and not has_ao_layers(model)
    with accel.utils.get_mixed_precision_context_manager(native_amp=accelerator.native_amp):
        assert torch.nn.functional.linear(torch.ones(1, 4), torch.ones(4, 4)).dtype == torch.bfloat16
    for batch in loader:
        accelerator.backward(model(batch).square().mean())
        optimizer.step()
        optimizer.zero_grad()


def test_a_model_is_unwrapped_and_copied():
    with pytest.warns(FutureWarning):
        recipe = FP8RecipeKwargs(backend="TE")
    accelerator = Accelerator(cpu=True, mixed_precision="fp8", kwargs_handlers=[recipe])
    model = torch.nn.Sequential(torch.nn.Linear(32, 16))
    inputs, optimizer = torch.randn(10, 32), torch.optim.AdamW(model.parameters())
    model, optimizer = accelerator.prepare(model, optimizer)
    within = model(inputs)
    model = accelerator.unwrap_model(model, keep_fp32_wrapper=False)
    alone = model(inputs)
    assert not torch.equal(within, alone) and torch.allclose(within, alone, atol=0.2)
    assert torch.equal(pickle.loads(pickle.dumps(model))(inputs), alone)


@pytest.mark.parametrize("reentrant", [False, True])
def test_forwards_that_torch_computes_again_have_the_same_gradients(reentrant):
    class Checkpointed(Toy):
        recomputes = True

        def forward(self, ids):
            hidden = torch.nn.functional.gelu(self.first(self.embedding(ids)))
            hidden = torch.utils.checkpoint.checkpoint(self.block, hidden, use_reentrant=reentrant) if self.recomputes else self.block(hidden)
            return self.last(hidden)

    found = []
    for recomputes in (False, True):
        accel.PartialState._reset_state()
        accelerator = Accelerator(cpu=True, mixed_precision="fp8", kwargs_handlers=[AORecipeKwargs()])
        torch.manual_seed(0)
        model = accelerator.prepare(Checkpointed())
        model.recomputes = recomputes
        accelerator.backward(model(torch.arange(16)).square().mean())
        found.append([parameter.grad for parameter in model.parameters()])
        assert "block.0" in accelerator.describe_fp8(model)["layers"]
    assert all(torch.equal(first, second) for first, second in zip(*found, strict=True))


def test_hooks_of_torch_get_what_is_kept_in_8_bits():
    accelerator = Accelerator(cpu=True, mixed_precision="fp8", kwargs_handlers=[AORecipeKwargs()])
    model, kept = accelerator.prepare(Toy()), []

    def pack(tensor):
        kept.append((tensor.dtype, tuple(tensor.shape)))
        return tensor.clone()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = model(torch.arange(32) % 16).square().mean()
    accelerator.backward(loss)
    assert (torch.float8_e4m3fn, (32, 64)) in kept  # of the norm; products keep theirs transposed
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


@pytest.mark.parametrize("stage", [1, 3])
def test_deepspeeds_stages(ranks, stage):
    printed = ranks(f"""
        import torch
        from accel import Accelerator
        from accel.state.process import AcceleratorState
        from accel.utils import DeepSpeedPlugin, TERecipeKwargs, has_transformer_engine_layers

        file = {{"bf16": {{"enabled": True}}, "zero_optimization": {{"stage": {stage}}}, "gradient_accumulation_steps": 1, "gradient_clipping": "auto",
                 "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto"}}
        accelerator = Accelerator(cpu=True, mixed_precision="fp8", kwargs_handlers=[TERecipeKwargs()], deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=file))
        loader = torch.utils.data.DataLoader(torch.randn(16, 32), batch_size=2)
        model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.LayerNorm(32, bias=False), torch.nn.Linear(32, 16))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.1)
        model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
        for batch in loader:
            accelerator.backward(model(batch).square().mean())
            optimizer.step()
        print(accelerator.fp8_enabled, has_transformer_engine_layers(model), AcceleratorState().deepspeed_plugin.zero_stage)
    """)
    assert [text.split() for text in printed] == [["True", "True", str(stage)]] * 2


def test_converted_layers_compute_by_themselves():
    torch.manual_seed(1)
    model, ids = Toy(), torch.arange(16)
    plain = copy.deepcopy(model)
    weights = dict(model.named_parameters())
    convert_model_to_fp8_ao(model)
    assert [name for name, module in model.named_modules() if type(module).__name__ == "Fp8Linear"] == ["block.0"]
    assert has_ao_layers(model) and not has_transformer_engine_layers(model) and not has_ao_layers(plain)
    assert all(parameter is weights[name] for name, parameter in model.named_parameters())
    expected, output = plain(ids), model(ids)
    assert not torch.equal(output, expected) and torch.allclose(output, expected, atol=0.1)
    inputs = torch.relu(plain.first(plain.embedding(ids)))
    assert torch.equal(model.block[0](inputs), torch.ops.accel.fp8_linear(inputs, model.block[0].weight, model.block[0].bias))
    output.square().mean().backward()
    assert model.block[0].weight.grad is not None
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert has_ao_layers(other) and torch.equal(other(ids), model(ids))
    convert_model_to_fp8_ao(plain, module_filter_func=lambda module, name: name == "last")
    assert type(plain.last).__name__ == "Fp8Linear" and type(plain.block[0]) is torch.nn.Linear


def test_layers_of_transformer_engines_recipe_compute_in_its_forward():
    torch.manual_seed(1)
    model, ids = Toy(), torch.arange(16)
    expected, other = model(ids), copy.deepcopy(model)
    convert_model(model)
    assert has_transformer_engine_layers(model) and not has_ao_layers(model)
    assert [name for name, module in model.named_modules() if type(module).__name__ == "Fp8Linear"] == ["first", "block.0", "last"]
    assert torch.equal(model(ids), expected), "outside of the forward in 8 bits"
    within = contextual_fp8_autocast(Toy.forward, TERecipeKwargs(fp8_format="E4M3"))
    assert within.__wrapped__ is Toy.forward
    wrapped = apply_fp8_autowrap(model, TERecipeKwargs())
    assert wrapped is model
    output = model(ids)
    assert not torch.equal(output, expected) and torch.allclose(output, expected, atol=0.2)
    model.eval()
    assert torch.equal(model(ids), expected), "in evaluation"
    convert_model(other.eval())
    assert not torch.equal(apply_fp8_autowrap(other, TERecipeKwargs(use_autocast_during_eval=True))(ids), expected)
    convert_model(model, to_transformer_engine=False)
    assert type(model.first) is torch.nn.Linear and not has_transformer_engine_layers(model) and torch.equal(model(ids), expected)
    with pytest.raises(ValueError, match="not supported for MXFP8"):
        apply_fp8_autowrap(Toy(), TERecipeKwargs(use_mxfp8_block_scaling=True, amax_history_len=4))


def test_sharded_models_train(ranks, tmp_path):
    printed = ranks(f"""
        import torch
        from accel import Accelerator, FullyShardedDataParallelPlugin
        from accel.utils import AORecipeKwargs, has_ao_layers

        plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="size_based_wrap", min_num_params=100, cpu_ram_efficient_loading=True)
        accelerator = Accelerator(cpu=True, mixed_precision="fp8", kwargs_handlers=[AORecipeKwargs()], fsdp_plugin=plugin)
        torch.manual_seed(0)
        model = accelerator.prepare(torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.Linear(64, 32)))
        optimizer = accelerator.prepare(torch.optim.AdamW(model.parameters(), lr=1e-2))
        x, losses = torch.randn(16, 32), []
        for _ in range(6):
            losses.append((model(x) - x).square().mean())
            accelerator.backward(losses[-1])
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        accelerator.save_state(r"{tmp_path / 'state'}")
        accelerator.load_state(r"{tmp_path / 'state'}")
        print(bool(losses[-1] < 0.8 * losses[0]), has_ao_layers(model))
    """)
    assert [text.split() for text in printed] == [["True", "True"]] * 2


def test_two_ranks_have_the_losses_of_one(ranks):
    printed = ranks("""
        import torch
        from accel import Accelerator
        from accel.utils import TERecipeKwargs, has_transformer_engine_layers

        accelerator = Accelerator(cpu=True, mixed_precision="fp8", kwargs_handlers=[TERecipeKwargs(amax_history_len=4)])
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16))
        model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
        assert has_transformer_engine_layers(model) and accelerator.fp8_backend == "TE"
        torch.manual_seed(accelerator.process_index)
        x = torch.randn(8, 16)
        for _ in range(4):
            accelerator.backward(model(x).square().mean())
            optimizer.step()
            optimizer.zero_grad()
        weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
        both = accelerator.gather(weights[None])
        print(bool(torch.equal(both[0], both[1])))
    """)
    assert [text.split() for text in printed] == [["True"], ["True"]]
