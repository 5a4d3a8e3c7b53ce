# SPDX-License-Identifier: Apache-2.0
"""What scripts of torch call around sharding: whole parameters, functions of FSDP 2, files of weights and of optimizers, DeepSpeed's calling rule."""

import textwrap

import pytest

torch = pytest.importorskip("torch", reason="there is no torch")

BEGIN = """
    import json, os
    import torch
    from accel import Accelerator, DeepSpeedPlugin, FullyShardedDataParallelPlugin, capi
    from accel.utils import (DeepSpeedEngineWrapper, DeepSpeedOptimizerWrapper, DeepSpeedSchedulerWrapper, GatheredParameters, fsdp2_apply_ac,
                             fsdp2_load_full_state_dict, fsdp2_prepare_auto_wrap_policy, fsdp2_prepare_model, fsdp2_switch_optimizer_parameters,
                             get_fsdp2_grad_scaler, get_parameters_from_modules, load_fsdp_model, load_fsdp_optimizer, load_state_dict,
                             save_fsdp_model, save_fsdp_optimizer)

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.up = torch.nn.Linear(4, 5)
            self.down = torch.nn.Linear(5, 4)

        def forward(self, x):
            return x + self.down(torch.tanh(self.up(x)))

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = torch.nn.ModuleList([Block(), Block()])
            self.last = torch.nn.Linear(4, 1)
            self.register_buffer("scale", torch.ones(3))

        def forward(self, x):
            for block in self.blocks:
                x = block(x)
            return self.last(x)

    def make(**settings):
        torch.manual_seed(0)
        model = Net()
        plugin = FullyShardedDataParallelPlugin(**{"fsdp_version": 2, "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
                                                   "transformer_cls_names_to_wrap": ["Block"], **settings})
        return Accelerator(cpu=True, fsdp_plugin=plugin), plugin, model, torch.optim.AdamW(model.parameters(), lr=0.05)

    def batch(step, accelerator):
        share = 8 // accelerator.num_processes
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
        return x[accelerator.process_index * share:][:share]

    def train(accelerator, model, optimizer, steps):
        losses = []
        for step in steps:
            loss = model(batch(step, accelerator)).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(round(accelerator.reduce(loss.detach(), "mean").item(), 6))
        return losses

    def fails(kind, text, function, *arguments, **settings):
        try:
            function(*arguments, **settings)
        except kind as error:
            assert text in str(error), error
        else:
            raise AssertionError(f"no {kind.__name__}")
"""


def run(ranks, script, num_processes=2, **environment):
    return ranks(textwrap.dedent(BEGIN) + textwrap.dedent(script), num_processes=num_processes, **environment)


# Regression: weights of a sharded model of accel, as `get_state_dict()` of Python returned them, were the rows of one rank.
def test_parameters_are_whole_inside_a_scope(ranks):
    run(ranks, """
        accelerator, plugin, model, optimizer = make()
        start = {name: value.clone() for name, value in model.state_dict().items()}
        model, optimizer = accelerator.prepare(model, optimizer)
        weight = model.module.blocks[0].up.weight
        rows = len(weight)
        assert rows == (3 if accelerator.process_index == 0 else 2)
        with GatheredParameters([weight, weight]):  # given twice
            assert weight.shape == (5, 4) and torch.equal(weight, start["blocks.0.up.weight"]) and model.module.blocks[0].up.weight is weight
            with torch.no_grad():
                weight.zero_()
        assert len(weight) == rows and torch.equal(weight, start["blocks.0.up.weight"][:3] if rows == 3 else start["blocks.0.up.weight"][3:])
        with GatheredParameters(model, modifier_rank=1):
            for name, parameter in model.module.named_parameters():
                assert torch.equal(parameter, start[name]), name
                with torch.no_grad():
                    parameter.fill_(7.0 if accelerator.process_index == 1 else -1.0)
        with GatheredParameters(iter(model.parameters())):
            assert all((parameter == 7).all() for parameter in model.parameters())
        with GatheredParameters(weight, enabled=False):
            assert len(weight) == rows
        fails(TypeError, "params has a int", GatheredParameters, [3])
        train(accelerator, model, optimizer, range(2))

        import accel
        from accel import nn
        own = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 1))
        whole = [parameter.tolist() for parameter in own.parameters()]
        plugin.auto_wrap_policy = None
        prepared = accelerator.prepare(own)
        first = next(iter(own.parameters()))
        assert first.shape == (3, 4)
        with GatheredParameters(own):
            assert accelerator.process_index or [parameter.tolist() for parameter in own.parameters()] == whole
        assert first.shape == (3, 4) and prepared(accel.ones(2, 4)).shape == (2, 1)
        collected = accelerator.get_state_dict(prepared)
        assert accelerator.process_index or [value.tolist() for value in collected.values()] == whole
        """)


def test_without_sharding_the_scope_is_empty(ranks):
    for printed in run(ranks, """
            accelerator = Accelerator(cpu=True)
            model = accelerator.prepare(Net())
            if accelerator.process_index == 0:  # nothing that the other rank must take part in
                with GatheredParameters(model, modifier_rank=0):
                    assert model.last.weight.shape == (1, 4)
            print("done")
            """):
        assert printed == "done\n"


def test_functions_of_version_2(ranks):
    run(ranks, """
        accelerator, plugin, model, optimizer = make()
        start = {name: value.clone() for name, value in model.state_dict().items()}
        fits = fsdp2_prepare_auto_wrap_policy(plugin, model)
        assert [fits(module) for module in (model, model.blocks, model.blocks[0], model.last)] == [False, False, True, False]
        plugin.auto_wrap_policy = None
        assert fsdp2_prepare_auto_wrap_policy(plugin, model) is None
        sized = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="SIZE_BASED_WRAP", min_num_params=25)
        fits = fsdp2_prepare_auto_wrap_policy(sized, model)
        assert fits(model.blocks[0]) and not fits(model.blocks[0].up)
        plugin.auto_wrap_policy = type(plugin)(fsdp_version=2, auto_wrap_policy="TRANSFORMER_BASED_WRAP").auto_wrap_policy
        plugin.transformer_cls_names_to_wrap = ["Layer"]
        fails(ValueError, "Could not find the transformer layer class Layer in the model.", fsdp2_prepare_auto_wrap_policy, plugin, model)
        plugin.transformer_cls_names_to_wrap = ["Block"]

        assert get_parameters_from_modules(None, model, "cpu") == set()
        assert get_parameters_from_modules(r"blocks\\.0\\..*", model, "cpu") == set(model.blocks[0].parameters())
        assert get_parameters_from_modules([model.last], model, "cpu") == {model.last.weight, model.last.bias}

        other = torch.nn.Linear(4, 1)
        switched = torch.optim.SGD(other.parameters(), lr=0.1)
        fsdp2_switch_optimizer_parameters(switched, {other.weight.data_ptr(): model.last.weight, other.bias.data_ptr(): model.last.bias})
        assert switched.param_groups[0]["params"][0] is model.last.weight
        fails(KeyError, "not in the mapping", fsdp2_switch_optimizer_parameters, switched, {})

        assert fsdp2_apply_ac(accelerator, model) is model and plugin.checkpoints_activations_of(model)
        assert not plugin.checkpoints_activations_of(Net())
        prepared = fsdp2_prepare_model(accelerator, model)
        assert fsdp2_prepare_model(accelerator, prepared) is prepared and len(model.blocks[0].up.weight) < 5
        assert [group["module"] for group in capi.accel_sharded_modules(prepared.forward.handle)] == ["blocks.0", "blocks.1", ""]
        fails(ValueError, "is prepared already", fsdp2_apply_ac, accelerator, prepared)
        optimizer = accelerator.prepare(optimizer)
        same = {number: one for number, one in enumerate(model.parameters(), 1)}
        fsdp2_switch_optimizer_parameters(optimizer, same)
        weight = model.blocks[0].up.weight
        same = {weight.data_ptr(): other.weight, **{number: one for number, one in same.items() if one is not weight}}
        fails(ValueError, "is prepared", fsdp2_switch_optimizer_parameters, optimizer, same)
        whole = {name: value * 2 for name, value in start.items()} if accelerator.is_main_process else {}
        assert fsdp2_load_full_state_dict(accelerator, prepared, whole) is prepared
        with GatheredParameters(prepared):
            for name, value in model.state_dict().items():
                assert torch.equal(value, start[name] * 2), name
        fails(KeyError, "lacks scale, blocks.0.up.weight, ", fsdp2_load_full_state_dict, accelerator, prepared, {})
        whole["last.bias"] = torch.zeros(3)
        fails(ValueError, "last.bias has shape [3] in the state dict: expected [1]", fsdp2_load_full_state_dict, accelerator, prepared, whole)
        losses = train(accelerator, prepared, optimizer, range(3))

        scaler = get_fsdp2_grad_scaler(device="cpu", init_scale=4.0)
        steps = []
        for step in range(2):
            optimizer.zero_grad()
            before = model.blocks[0].up.weight.detach().clone()
            scaler.scale(prepared(batch(step, accelerator)).square().mean()).backward()
            if step == 0 and accelerator.process_index == 1:
                model.blocks[0].up.weight.grad[0, 0] = float("inf")
            scaler.step(optimizer.optimizer)
            scaler.update()
            steps.append(torch.equal(before, model.blocks[0].up.weight))
        assert steps == [True, False], steps  # the overflow of one rank is that of all
        """)


# Regression: backward of a sharded model of torch with `activation_checkpointing` failed in Python: nothing was there to be
# computed again.
def test_forwards_of_groups_are_computed_again(ranks):
    run(ranks, """
        from accel import AcceleratorState
        results, calls = [], []
        forward = Block.forward

        def counted(self, x):
            calls.append(type(self).__name__)
            return torch.nn.functional.dropout(forward(self, x), 0.3)

        Block.forward = counted
        for settings, again in (({}, 1), ({"activation_checkpointing": True}, 2),
                                ({"activation_checkpointing": True, "activation_checkpointing_offload": True}, 2),
                                ({"activation_checkpointing": True, "auto_wrap_policy": "NO_WRAP"}, 2)):
            for precision in ("no", "bf16"):
                accelerator, plugin, model, optimizer = make(**settings)
                if precision == "bf16":
                    AcceleratorState._reset_state(True)
                    accelerator = Accelerator(cpu=True, fsdp_plugin=plugin, mixed_precision=precision)
                model, optimizer = accelerator.prepare(model, optimizer)
                torch.manual_seed(1)
                calls.clear()
                losses = train(accelerator, model, optimizer, range(3))
                assert len(calls) == 3 * 2 * again, (settings, calls)
                with torch.no_grad():
                    model(batch(0, accelerator))
                assert len(calls) == 3 * 2 * again + 2
                results.append((precision, losses))
                del model, optimizer
                AcceleratorState._reset_state(True)
        assert all(losses == results[precision == "bf16"][1] for precision, losses in results), results
        """)


def test_names_without_wrappers():
    from accel.utils import fsdp2_canonicalize_names

    names = {"_orig_mod.a._checkpoint_wrapped_module.b": 1, "c._orig_mod.d": 2, "e": 3}
    assert fsdp2_canonicalize_names(names) == {"a.b": 1, "c.d": 2, "e": 3}


def test_parts_are_compiled_where_they_are():
    from accel.utils import compile_regions_deepspeed, compile_regions_fsdp2

    for function, result in ((compile_regions_fsdp2, True), (compile_regions_deepspeed, False)):
        model = torch.nn.Sequential(torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)]), torch.nn.Linear(2, 1))
        parts = list(model.modules())
        assert (function(model, backend="eager") is model) == result and list(model.modules()) == parts
        compiled = [part._compiled_call_impl is not None for part in parts]
        assert compiled == [False, False, True, True, True]


CHECKPOINTS = """
    accelerator, plugin, model, optimizer = make(**json.loads(os.environ["SETTINGS"]))
    if plugin.fsdp_version == 1 and plugin.state_dict_type.name == "FULL_STATE_DICT":  # before prepare() only the main process loads
        kind, text = (FileNotFoundError, "pytorch_model_fsdp.bin") if accelerator.is_main_process else (ValueError, "sync_module_states is False")
        fails(kind, text, load_fsdp_model, plugin, accelerator, model, ".")
    model, optimizer = accelerator.prepare(model, optimizer)
    use_dcp = os.environ.get("USE_DCP") != "no"
    train(accelerator, model, optimizer, range(3))
    save_fsdp_model(plugin, accelerator, model, "saved", use_dcp=use_dcp)
    save_fsdp_optimizer(plugin, accelerator, optimizer, model, "saved", use_dcp=use_dcp)
    expected = train(accelerator, model, optimizer, range(3, 6))
    load_fsdp_model(plugin, accelerator, model, "saved", use_dcp=use_dcp)
    load_fsdp_optimizer(plugin, accelerator, optimizer, model, "saved", use_dcp=use_dcp)
    found = train(accelerator, model, optimizer, range(3, 6))
    assert found == expected, (found, expected)
    print(*sorted(os.listdir("saved")), *expected)
"""
LOADING = """
    accelerator, plugin, model, optimizer = make(**json.loads(os.environ["SETTINGS"]))
    model, optimizer = accelerator.prepare(model, optimizer)
    load_fsdp_model(plugin, accelerator, model, "saved")
    load_fsdp_optimizer(plugin, accelerator, optimizer, model, "saved")
    if plugin.state_dict_type.name == "SHARDED_STATE_DICT":  # as Accelerate reads it, into a model of torch alone
        from torch.distributed import checkpoint
        from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
        twin = Net()
        theirs = torch.optim.AdamW(twin.parameters(), lr=0.5)
        state = {"optimizer": get_optimizer_state_dict(twin, theirs)}
        checkpoint.load(state, storage_reader=checkpoint.FileSystemReader("saved/optimizer_0"), no_dist=True)
        set_optimizer_state_dict(twin, theirs, state["optimizer"])
        state = {"model": twin.state_dict()}
        checkpoint.load(state, storage_reader=checkpoint.FileSystemReader("saved/pytorch_model_fsdp_0"), no_dist=True)
        assert theirs.param_groups[0]["lr"] == 0.05
        for own, other in zip(model.parameters(), twin.parameters()):
            assert torch.equal(own, other) and all(torch.equal(theirs.state[other][key], value) for key, value in optimizer.state[own].items())
        assert len(theirs.state) == 10
    print(*train(accelerator, model, optimizer, range(3, 6)))
"""
FILES = {
    ("FULL_STATE_DICT", 1, ""): ["optimizer.bin", "pytorch_model_fsdp.bin"],
    ("SHARDED_STATE_DICT", 2, ""): ["optimizer_0", "pytorch_model_fsdp_0"],
    ("SHARDED_STATE_DICT", 2, "no"): ["optimizer_0_rank0.bin", "optimizer_0_rank1.bin", "pytorch_model_fsdp_0_rank0.bin", "pytorch_model_fsdp_0_rank1.bin"],
    ("LOCAL_STATE_DICT", 1, ""): ["optimizer_0", "pytorch_model_fsdp_rank0.bin", "pytorch_model_fsdp_rank1.bin"],
}


@pytest.mark.parametrize("kind, version, use_dcp", FILES)
def test_weights_and_optimizers_in_the_files_of_the_reference(ranks, tmp_path, kind, version, use_dcp):
    settings = f'{{"state_dict_type": "{kind}", "fsdp_version": {version}}}'
    (first, _) = run(ranks, CHECKPOINTS, SETTINGS=settings, USE_DCP=use_dcp)
    *files, _, _, _ = first.split()
    assert files == FILES[kind, version, use_dcp]
    if use_dcp or kind == "LOCAL_STATE_DICT":
        return
    (alone,) = run(ranks, LOADING, num_processes=1, SETTINGS=settings)
    assert [float(loss) for loss in alone.split()] == pytest.approx([float(loss) for loss in first.split()[-3:]], rel=1e-4)
    from accel.utils import merge_fsdp_weights

    if kind == "SHARDED_STATE_DICT":
        merge_fsdp_weights(tmp_path / "saved" / "pytorch_model_fsdp_0", tmp_path / "merged")
        assert (tmp_path / "merged" / "model.safetensors").exists()
    else:
        weights = torch.load(tmp_path / "saved" / "pytorch_model_fsdp.bin", weights_only=True)
        states = torch.load(tmp_path / "saved" / "optimizer.bin", weights_only=True)
        assert weights["blocks.0.up.weight"].shape == states["state"]["blocks.0.up.weight"]["exp_avg"].shape == (5, 4)
        assert states["param_groups"][0]["params"][0] == "blocks.0.up.weight"


def test_files_of_ranks_that_have_copies_hold_each_row_once(ranks, tmp_path):
    settings = '{"state_dict_type": "FULL_STATE_DICT", "fsdp_version": 1, "sharding_strategy": "HYBRID_SHARD"}'
    (first, *_) = run(ranks, CHECKPOINTS, num_processes=4, SETTINGS=settings, USE_DCP="", PARALLELISM_CONFIG_DP_SHARD_SIZE=2,
                      PARALLELISM_CONFIG_DP_REPLICATE_SIZE=2)
    (alone,) = run(ranks, LOADING, num_processes=1, SETTINGS=settings.replace("HYBRID_SHARD", "FULL_SHARD"))
    assert [float(loss) for loss in alone.split()] == pytest.approx([float(loss) for loss in first.split()[-3:]], rel=1e-4)
    states = torch.load(tmp_path / "saved" / "optimizer.bin", weights_only=True)["state"]
    assert states["blocks.0.up.weight"]["exp_avg"].shape == (5, 4) and states["last.weight"]["exp_avg"].shape == (1, 4)


def test_models_without_memory_get_values_from_param_init_fn(ranks):
    run(ranks, """
        def initialize(module):
            called.append(type(module).__name__)
            module.to_empty(device="cpu", recurse=False)
            with torch.no_grad():
                for value in [*module.parameters(recurse=False), *module.buffers(recurse=False)]:
                    value.fill_(2.0 + rank)

        rank = int(os.environ["RANK"])
        accelerator, plugin, _, _ = make(param_init_fn=initialize)
        called = []
        with torch.device("meta"):
            model = Net()
            model.blocks[0].up.weight = model.blocks[1].up.weight  # tied
        tied, optimizer = model.blocks[0].up.weight, torch.optim.AdamW(model.parameters(), lr=0.05)
        model, optimizer = accelerator.prepare(model, optimizer)
        assert called == ["Net", "Linear", "Linear", "Linear", "Linear", "Linear"], called
        inner = model.module
        assert inner.blocks[0].up.weight is inner.blocks[1].up.weight is tied and optimizer.param_groups[0]["params"][0] is tied
        with GatheredParameters(model):
            assert all((value == 2).all() for value in inner.state_dict().values())  # those of rank 0
        before = tied.detach().clone()
        train(accelerator, model, optimizer, range(2))
        assert not torch.equal(before, tied)

        def forgets(module):
            if not isinstance(module, torch.nn.Linear):
                initialize(module)

        plugin.param_init_fn = forgets
        with torch.device("meta"):
            model = Net()
        fails(ValueError, "Net.blocks.0.up (Linear) has weight, bias on the device meta, without memory, after param_init_fn", accelerator.prepare, model)
        plugin.param_init_fn = None
        fails(ValueError, "Net.blocks.0.up (Linear) has weight, bias on the device meta, without memory: expected weights", accelerator.prepare, model)
        """)


def test_only_the_main_process_needs_weights(ranks):
    run(ranks, """
        from accel import AcceleratorState
        for settings in ({"cpu_ram_efficient_loading": True}, {"fsdp_version": 1, "sync_module_states": True}):
            accelerator, plugin, model, _ = make(**settings)
            start = {name: value.clone() for name, value in model.state_dict().items()}
            if not accelerator.is_main_process:
                model = model.to("meta")
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
            model, optimizer = accelerator.prepare(model, optimizer)
            with GatheredParameters(model):
                assert all(torch.equal(value, start[name]) for name, value in model.module.state_dict().items())
            train(accelerator, model, optimizer, range(2))
            with GatheredParameters(model):
                assert not torch.equal(model.module.last.weight, start["last.weight"])
            del model, optimizer
            AcceleratorState._reset_state(True)

        for flag in (True, False):
            accelerator = Accelerator(cpu=True, deepspeed_plugin=DeepSpeedPlugin(zero_stage=3, zero3_init_flag=flag))
            torch.manual_seed(0)
            model = Net()
            start = {name: value.clone() for name, value in model.state_dict().items()}
            if not accelerator.is_main_process:
                model = model.to("meta")
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
            if flag:
                model, optimizer, _ = accelerator.prepare(model, optimizer, torch.utils.data.DataLoader(range(4)))
                with GatheredParameters(model):
                    assert all(torch.equal(value, start[name]) for name, value in model.module.state_dict().items())
            elif not accelerator.is_main_process:  # before it meets rank 0
                fails(ValueError, "on the device meta, without memory", accelerator.prepare, model, torch.utils.data.DataLoader(range(4)))
            del model, optimizer
            AcceleratorState._reset_state(True)
        """)


def test_shards_are_of_float32_under_mixed_precision(ranks):
    run(ranks, """
        from accel import AcceleratorState
        _, plugin, model, _ = make()
        AcceleratorState._reset_state(True)
        model = model.to(torch.bfloat16)
        model.last.bias.requires_grad = False
        optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=0.05)
        accelerator = Accelerator(cpu=True, fsdp_plugin=plugin, mixed_precision="bf16")
        model, optimizer = accelerator.prepare(model, optimizer)
        kinds = {name: parameter.dtype for name, parameter in model.module.named_parameters()}
        assert kinds.pop("last.bias") == torch.bfloat16 and set(kinds.values()) == {torch.float32}, kinds
        before = [parameter.detach().clone() for parameter in model.parameters()]
        train(accelerator, model, optimizer, range(2))
        changed = [not torch.equal(old, new) for old, new in zip(before, model.parameters()) if new.requires_grad and len(new)]
        assert changed and all(changed)
        """)


def test_settings_of_offload_and_groups_train_alike(ranks):
    script = """
        from accel import AcceleratorState
        os.makedirs("offload", exist_ok=True)
        results = []
        for settings in ({}, {"reshard_after_forward": 2}, {"offload_optimizer": True, "offload_folder": "offload"},
                         {"cpu_offload": True, "offload_folder": "offload"}):
            accelerator, plugin, model, optimizer = make(**settings)
            options = plugin.to_engine(model)
            assert options.reshard_group_size == settings.get("reshard_after_forward", capi.ACCEL_UNSET_INT64)
            assert (options.offload_folder or None) == settings.get("offload_folder")
            model, optimizer = accelerator.prepare(model, optimizer)
            results.append(train(accelerator, model, optimizer, range(3)))
            accelerator.free_memory()
            AcceleratorState._reset_state(True)
        assert all(result == results[0] for result in results), results
        """
    run(ranks, script, num_processes=4)


DEEPSPEED = """
        def prepare(stage, model=None, optimizer=None, scheduler=None, **settings):
            torch.manual_seed(0)
            config = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": settings.pop("steps", 1), "gradient_clipping": 1.0,
                      "zero_optimization": {"stage": stage, **settings.pop("zero", {})}, **settings.pop("config", {})}
            accelerator = Accelerator(cpu=True, deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=config, **settings))
            model = Net() if model is None else model
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
            return accelerator, *accelerator.prepare(model, optimizer)
"""


def test_16_bit_weights_are_gathered_if_the_plugin_says_so(ranks):
    run(ranks, DEEPSPEED + """
        from accel import AcceleratorState
        asked = {"stage3_gather_16bit_weights_on_model_save": True, "stage3_param_persistence_threshold": 10}
        accelerator, model, _ = prepare(3, zero=asked, config={"bf16": {"enabled": True}})
        whole = accelerator.get_state_dict(model)
        assert (len(whole) == 11) == accelerator.is_main_process
        assert all(value.dtype == torch.bfloat16 for value in whole.values())
        accelerator.save_model(model, "saved")
        accelerator.wait_for_everyone()
        saved = load_state_dict("saved")
        assert saved["blocks.1.down.weight"].dtype == torch.bfloat16 and saved["blocks.1.down.weight"].shape == (4, 5)
        assert all(torch.equal(saved[name], value) for name, value in whole.items())
        AcceleratorState._reset_state(True)
        accelerator, model, _ = prepare(3, model=Net())
        text = "Cannot get 16bit model weights because `stage3_gather_16bit_weights_on_model_save` in DeepSpeed config is False."
        fails(ValueError, text, accelerator.get_state_dict, model)
        fails(ValueError, text, accelerator.save_model, model, "other")
        AcceleratorState._reset_state(True)
        accelerator, model, _ = prepare(2, model=Net())
        whole = accelerator.get_state_dict(model)
        assert accelerator.process_index or whole["last.weight"].dtype == torch.float32
        """)


def test_an_engine_that_updates_in_backward(ranks):
    run(ranks, DEEPSPEED + """
        from accel import AcceleratorState
        from accel.utils.deepspeed import map_pytorch_optim_to_deepspeed

        def trained(calls_step):
            accelerator, model, optimizer = prepare(3, steps=2)
            wrapped = accelerator.deepspeed_engine_wrapped
            assert isinstance(optimizer, DeepSpeedOptimizerWrapper) and isinstance(wrapped, DeepSpeedEngineWrapper) and wrapped.engine.module is model
            assert wrapped.get_global_grad_norm() is None and not wrapped.engine.zero_gather_16bit_weights_on_model_save()
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer.optimizer, 100)
            scheduler = DeepSpeedSchedulerWrapper(accelerator.prepare(scheduler), optimizer)
            norms = []
            for step in range(4):
                with accelerator.accumulate(model):
                    accelerator.backward(model(batch(step, accelerator)).square().mean())
                    if accelerator.sync_gradients:
                        norms.append(accelerator.clip_grad_norm_(model.parameters(), 1e-9))  # the configuration clips
                        assert norms[-1] == wrapped.get_global_grad_norm() and model.module.last.weight.grad is None
                    if calls_step:
                        optimizer.step()  # nothing
                        scheduler.step()
                        optimizer.zero_grad()
            assert not optimizer.step_was_skipped and scheduler.get_last_lr() == [0.05] and map_pytorch_optim_to_deepspeed(optimizer) is optimizer
            return model, norms

        found = []
        for calls_step in (False, True):
            model, norms = trained(calls_step)
            with GatheredParameters(model):
                found.append((norms, [parameter.tolist() for parameter in model.parameters()]))
            del model
            AcceleratorState._reset_state(True)
        assert found[0] == found[1] and len(found[0][0]) == 2 and found[0][0][0] > 0, found

        class Overflown(torch.optim.SGD):
            overflow = True

        prepare(3)
        assert DeepSpeedOptimizerWrapper(Overflown([torch.nn.Parameter(torch.zeros(2))], lr=0.1)).step_was_skipped
        """)


def test_modules_of_experts_are_one_group_and_files_hold_what_is_offloaded(ranks):
    run(ranks, DEEPSPEED + """
        from accel import AcceleratorState
        accelerator, model, optimizer = prepare(3, transformer_moe_cls_names="Block")
        groups = {group["module"]: group["parameters"] for group in capi.accel_sharded_modules(model.forward.handle)}
        assert groups == {"blocks.0": 4, "blocks.1": 4, "": 2}, groups
        expected = train(accelerator, model, optimizer, range(3))
        del model, optimizer
        AcceleratorState._reset_state(True)
        os.makedirs("fast", exist_ok=True)
        for where in ({"offload_optimizer": {"device": "nvme", "nvme_path": "fast"}},
                      {"offload_param": {"device": "nvme", "nvme_path": "fast"}, "offload_optimizer": {"device": "nvme", "nvme_path": "fast"}}):
            accelerator, model, optimizer = prepare(3, transformer_moe_cls_names="Block", zero=where)
            found = train(accelerator, model, optimizer, range(3))
            assert found == expected, (where, found, expected)
            del model, optimizer
            AcceleratorState._reset_state(True)
        """)


def test_gradients_of_the_program_with_sharded_parameters(ranks):
    run(ranks, """
        import accel
        from accel import OwnGradients, nn, optim
        accel.set_seed(0)
        plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="SIZE_BASED_WRAP", min_num_params=8)
        accelerator = Accelerator(cpu=True, fsdp_plugin=plugin)
        model = nn.Sequential(nn.Linear(4, 3, bias=False), nn.Linear(3, 2, bias=False))
        whole = [parameter.tolist() for parameter in model.parameters()]
        gradients = OwnGradients(model)
        optimizer = accelerator.prepare(optim.SGD(model.parameters(), lr=1.0))
        first, second = model.parameters()
        assert len(first) == 2 - accelerator.process_index and len(second) == 1
        with accelerator.accumulate():
            gradients.unshard(model[0], wait=False)
            gradients.unshard("0")
            assert first.shape == (3, 4) and (accelerator.process_index or first.tolist() == whole[0])
            gradients.reshard(model[0])
            assert len(first) == 2 - accelerator.process_index
            for index, shape in ((1, (2, 3)), (0, (3, 4))):
                gradients.ready(index, accel.full(shape, 1.0 + 2 * accelerator.process_index))
            gradients.synchronize()
            optimizer.step()
        fails(ValueError, "is not a module of the Sequential", gradients.unshard, nn.Linear(1, 1))
        fails(capi.Error, "", gradients.unshard, "nowhere")
        with GatheredParameters(model):
            found = [parameter.tolist() for parameter in model.parameters()]
        if accelerator.is_main_process:  # the mean of 1 and 3
            assert all(abs(new - (old - 2)) < 1e-6 for news, olds in zip(found, whole) for row, of in zip(news, olds) for new, old in zip(row, of))
        """)
