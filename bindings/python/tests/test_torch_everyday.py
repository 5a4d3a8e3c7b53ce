# SPDX-License-Identifier: Apache-2.0
"""Everyday calls of programs of torch that are written for Accelerate."""

import importlib
import sys
import types

import pytest

torch = pytest.importorskip("torch")

import accel  # noqa: E402
from accel import Accelerator  # noqa: E402


# Regression: `accel.utils.tqdm` was a module.
def test_names_are_what_they_are_in_the_reference():
    from accel.utils import tqdm

    assert callable(tqdm) and tqdm is accel.tqdm and callable(accel.utils.tqdm)
    assert importlib.import_module("accel.utils.tqdm").tqdm is tqdm


# Regression: `accel.skip_first_batches()` failed for loaders of torch.
def test_skip_first_batches_takes_loaders_of_torch(accelerator):
    loader = accelerator.prepare(torch.utils.data.DataLoader(list(range(4)), batch_size=2))
    assert [batch.tolist() for batch in accel.skip_first_batches(loader, 1)] == [[2, 3]]
    assert len(list(accel.skip_first_batches(accel.DataLoader(accel.arange(4), batch_size=2), 1))) == 1


# Regression: `accelerator.save()` wrote safetensors into files that torch.load() should read, and refused plain values.
@pytest.mark.parametrize("value", [[0, 1, 2, 3], {"epoch": 3, "model": {"weight": torch.ones(2)}}, {"weight": torch.ones(2)}])
def test_values_are_saved_as_torch_saves_them(accelerator, tmp_path, value):
    accelerator.save(value, tmp_path / "value.bin")
    found = torch.load(tmp_path / "value.bin", weights_only=True)
    assert str(found) == str(value)


def test_weights_are_saved_as_safetensors_when_it_is_asked_for(accelerator, tmp_path):
    accelerator.save({"weight": torch.ones(2)}, tmp_path / "model.safetensors", safe_serialization=True)
    assert (tmp_path / "model.safetensors").read_bytes()[8:9] == b"{"


def test_a_loader_without_sequence_parallelism_stays(accelerator):
    loader = object()
    assert accelerator.deepspeed_ulysses_dl_adapter(loader, None) is loader


def test_what_a_model_consists_of():
    from torch.distributed.tensor import DTensor

    from accel.utils import has_ao_layers, is_peft_model, is_torch_xpu_tensor, model_has_dtensor

    model = torch.nn.Linear(2, 2)
    assert not (model_has_dtensor(model) or is_peft_model(model) or has_ao_layers(model) or is_torch_xpu_tensor(torch.ones(1)))

    class Part:
        __class__ = property(lambda self: DTensor)  # what isinstance() asks

    class Model:
        def parameters(self):
            return [Part()]

    assert model_has_dtensor(Model())


@pytest.mark.parametrize("function, module, name", [
    ("has_4bit_bnb_layers", "bitsandbytes.nn", "Linear4bit"), ("has_4bit_bnb_layers", "bitsandbytes.nn", "Linear8bitLt"),
    ("has_ao_layers", "torchao.float8.float8_linear", "Float8Linear"), ("has_transformer_engine_layers", "transformer_engine.pytorch", "LayerNorm"),
    ("has_transformer_engine_layers", "transformer_engine.pytorch", "Linear"),
    ("has_transformer_engine_layers", "transformer_engine.pytorch", "TransformerLayer"), ("is_peft_model", "peft", "PeftModel")])
def test_what_packages_put_into_a_model_is_seen(accelerator, monkeypatch, function, module, name):
    """The package is a stand-in that has the class, which a part of the model is of."""
    kind = type(name, (torch.nn.Linear,), {})
    stand_in = types.ModuleType(module)
    setattr(stand_in, name, kind)
    asks = getattr(accel.utils, function)
    model = kind(2, 2) if function == "is_peft_model" else torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Sequential(kind(2, 2)))
    assert not asks(model)  # the package is not imported
    monkeypatch.setitem(sys.modules, module, stand_in)
    assert asks(model) and asks(accelerator.prepare(model)) and not asks(torch.nn.Linear(2, 2))


def test_a_tensor_of_an_xpu_is_seen():
    class OnXpu(torch.Tensor):
        device = torch.device("xpu", 0)

    assert accel.utils.is_torch_xpu_tensor(torch.ones(2).as_subclass(OnXpu)) and not accel.utils.is_torch_xpu_tensor("xpu")


@pytest.mark.parametrize("kind, supported, expected", [("cuda", False, False), ("cuda", True, True), ("cpu", False, True)])
def test_a_gpu_without_bfloat16_is_said(monkeypatch, kind, supported, expected):
    monkeypatch.setattr(accel.capi, "accel_device_default", lambda: types.SimpleNamespace(type=kind))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *_, **__: supported)
    assert accel.utils.is_bf16_available() is expected


# Regression: with a parallelism configuration a loader of torch could not be prepared.
def test_a_mesh_as_torch_has_it(ranks):
    printed = ranks("""
        import torch
        from torch.utils.data import DataLoader
        from accel import Accelerator, InitProcessGroupKwargs, ParallelismConfig
        accelerator = Accelerator(cpu=True, parallelism_config=ParallelismConfig(tp_size=2, dp_replicate_size=2),
                                  kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")])
        mesh, rank = accelerator.torch_device_mesh, accelerator.process_index
        assert mesh.mesh_dim_names == ("dp_replicate", "tp") and mesh.ndim == 2 and mesh.shape == (2, 2) and mesh.size() == 4
        assert mesh["tp"].size() == mesh.size(1) == 2 and mesh["tp"].get_local_rank() == rank % 2 and mesh.get_coordinate() == [rank // 2, rank % 2]
        loader = accelerator.prepare(DataLoader(list(range(8)), batch_size=2))
        try:
            accelerator.prepare(torch.nn.Linear(1, 1))
        except Exception as error:
            assert "Linear has no tp_plan" in str(error)
        else:
            raise AssertionError
        model = accelerator.prepare_model(torch.nn.Linear(1, 1), split_by_program=True)
        with model.no_sync():
            accelerator.backward(model(torch.full((1, 1), float(rank // 2))).sum())
        print([batch.tolist() for batch in loader], model.module.weight.grad.item())
        try:
            mesh["expert"]
        except Exception as error:
            assert "expert" in str(error)
        else:
            raise AssertionError
        accelerator.end_training()
    """, num_processes=4)
    assert printed == ["[[0, 1], [4, 5]] 0.0\n"] * 2 + ["[[2, 3], [6, 7]] 1.0\n"] * 2


def test_a_mesh_of_one_rank():
    accelerator = Accelerator(cpu=True, parallelism_config=accel.ParallelismConfig())
    assert accelerator.torch_device_mesh.mesh_dim_names == () and accelerator.torch_device_mesh.size() == 1
    assert len(accelerator.prepare(torch.utils.data.DataLoader(list(range(8)), batch_size=2))) == 4


def test_nccl_is_the_default_of_the_reference(ranks):
    """Also on the CPU, where it means nothing; another name is an error."""
    ranks("""
        import datetime
        from accel import Accelerator, AcceleratorState, InitProcessGroupKwargs
        assert InitProcessGroupKwargs().timeout == datetime.timedelta(seconds=600)
        assert InitProcessGroupKwargs(backend="gloo").timeout == InitProcessGroupKwargs(backend=None).timeout == datetime.timedelta(seconds=1800)
        accelerator = Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(backend="nccl")])
        assert accelerator.num_processes == 2 and "timeout_ms = 600000" in accelerator.state.describe()
        AcceleratorState._reset_state(True)
        try:
            Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(backend="no_such")])
        except ValueError as error:
            assert "no_such" in str(error)
        else:
            raise AssertionError
    """)


def test_the_model_inside_computes_under_the_precision(ranks):
    """With two ranks as with one."""
    printed = ranks("""
        import copy, pickle
        import torch
        from accel import Accelerator

        class Net(torch.nn.Linear):
            def forward(self, x):
                output = super().forward(x)
                kinds.append(output.dtype)
                return output

        accelerator, kinds = Accelerator(cpu=True, mixed_precision="bf16"), []
        net = Net(2, 2)
        model = accelerator.prepare(net)
        inner = accelerator.unwrap_model(model)
        x = torch.ones(1, 2)
        assert inner is net and inner(x).dtype == torch.float32 and kinds == [torch.bfloat16]
        assert torch.equal(model(x), inner(x)) and kinds == [torch.bfloat16] * 3
        accelerator.backward(model(x * (accelerator.process_index + 1)).sum())
        both = accelerator.gather(net.weight.grad)
        assert torch.equal(both[:2], both[2:])
        kinds.clear()
        copy.deepcopy(net)(x)
        accelerator.unwrap_model(model, keep_fp32_wrapper=False)(x)
        assert kinds == [torch.float32] * 2 and accelerator.prepare(net) is not net
        print("done")
    """)
    assert printed == ["done\n"] * 2


@pytest.mark.parametrize("where", ["cpu", "disk"])
def test_casting_and_then_offloading(tmp_path, where):
    from accel.big_modeling import attach_layerwise_casting_hooks

    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
    expected = model.to(torch.bfloat16).float()(torch.ones(1, 2))
    attach_layerwise_casting_hooks(model, storage_dtype=torch.bfloat16, compute_dtype=torch.float32)
    settings = {"execution_device": torch.device("cpu")}
    model = accel.cpu_offload(model, **settings) if where == "cpu" else accel.disk_offload(model, tmp_path, **settings)
    with torch.no_grad():
        for _ in range(3):
            assert torch.equal(model(torch.ones(1, 2)), expected)


def test_tensors_of_one_module():
    module = accel.nn.Sequential(accel.nn.Linear(1, 1), accel.nn.Linear(1, 1))
    assert list(module.named_parameters(recurse=False)) == []
    assert [name for name, _ in module.named_parameters("net")][:1] == ["net.0.weight"]
    (first, *_) = module.children()
    assert [name for name, _ in first.named_parameters(recurse=False)] == ["weight", "bias"]


# Regression: `distributed_type` was a KeyError on accelerators other than CUDA with several ranks.
@pytest.mark.parametrize("kind", accel.DistributedType.list())
def test_each_kind_of_job_has_its_name(accelerator, monkeypatch, kind):
    from accel import capi

    monkeypatch.setattr(capi, "accel_distributed_type", lambda _: getattr(capi, f"ACCEL_DISTRIBUTED_{kind}"))
    monkeypatch.setattr(capi, "accel_use_distributed", lambda _: kind != "NO")
    assert accelerator.distributed_type == accel.DistributedType(kind) and kind in repr(accelerator.state)


def test_ranks_meet_where_a_script_of_torch_says(ranks, tmp_path):
    port = accel.state.environment.get_free_port()
    ranks(f"""
        import os
        from accel import PartialState, InitProcessGroupKwargs
        from datetime import timedelta
        os.environ["MASTER_PORT"] = "1"
        group = InitProcessGroupKwargs(backend="gloo", init_method="tcp://127.0.0.1:{port}", timeout=timedelta(seconds=90))
        state = PartialState(cpu=True, **group.to_kwargs())
        assert state.num_processes == 2
        assert "main_process_port = {port} (call)" in state.describe() and "timeout_ms = 90000 (call)" in state.describe()
    """)


def test_a_wait_on_the_cpu_lasts_as_in_the_reference():
    assert "timeout_ms = 1800000 (default)" in accel.PartialState(cpu=True).describe()


def test_the_step_of_the_accumulation(tmp_path):
    def begin():
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=3)
        return accelerator, accelerator.prepare(torch.nn.Linear(1, 1))

    accelerator, model = begin()
    completed = []
    for step in (1, 2, 3, 4):
        with accelerator.accumulate(model):
            assert accelerator.step == step
            completed.append(accelerator.sync_gradients)
            accelerator.backward(model(torch.ones(1, 1)).sum())
    assert completed == [False, False, True, False]
    accelerator.save_state(str(tmp_path / "saved"))
    accelerator.step = 0
    with accelerator.accumulate(model):
        assert accelerator.step == 1 and not accelerator.sync_gradients
    accel.PartialState._reset_state()
    accelerator, model = begin()
    accelerator.load_state(str(tmp_path / "saved"))
    assert accelerator.step == 4
    with accelerator.accumulate(model):
        assert accelerator.step == 5 and not accelerator.sync_gradients
    for wrong, error in ((-1, ValueError), (1.5, TypeError)):
        with pytest.raises(error, match="step="):
            accelerator.step = wrong


def test_the_end_of_a_loader_begins_a_new_step():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, loader = accelerator.prepare(torch.nn.Linear(1, 1), torch.utils.data.DataLoader(torch.ones(3, 1), batch_size=1))
    steps = []
    for batch in loader:
        with accelerator.accumulate(model):
            steps.append((accelerator.step, accelerator.sync_gradients))
            accelerator.backward(model(batch).sum())
    assert steps == [(1, False), (2, True), (0, True)]


def test_what_a_step_of_its_own_takes_from_torch():
    accelerator = Accelerator(cpu=True, mixed_precision="bf16")
    with accel.utils.get_mixed_precision_context_manager(native_amp=True, autocast_kwargs=accel.AutocastKwargs(cache_enabled=False)):
        assert torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16 and not torch.is_autocast_cache_enabled()
    with accel.utils.get_mixed_precision_context_manager():
        assert not torch.is_autocast_enabled("cpu")
    scaler = accel.utils.get_grad_scaler(init_scale=8.0)
    assert isinstance(scaler, torch.amp.GradScaler) and scaler.get_scale() == 8.0
    with pytest.raises(ValueError, match="accelerator.scaler"):
        accel.utils.get_grad_scaler(accel.DistributedType.FSDP)
    assert accelerator.native_amp and accelerator.ddp_handler is None and not accelerator.has_lomo_optimizer


def test_a_prepared_optimizer_has_the_scaler_and_keeps_states_where_they_are_asked_to_stay():
    accelerator = Accelerator(cpu=True, kwargs_handlers=[accel.GradScalerKwargs(enabled=True, init_scale=4.0)])
    model = torch.nn.Linear(1, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters()))
    assert optimizer.scaler.get_scale() == 4.0 and optimizer.gradient_state.num_steps == 1
    assert optimizer.accelerator_state.num_processes == 1 and optimizer.device_placement
    own = accel.optimizer.AcceleratedOptimizer(torch.optim.SGD(model.parameters(), lr=0.5), device_placement=False)
    assert not own.device_placement and own.scaler is None
    assert accelerator.prepare_optimizer(torch.optim.SGD(model.parameters(), lr=0.5), device_placement=False).device_placement is False


def test_a_configuration_of_the_mesh_as_json():
    config = accel.ParallelismConfig(cp_size=2)
    assert config.to_json()["cp_size"] == 2 and config.to_json()["cp_handler"] == {"cp_comm_strategy": "allgather"}
    assert "device_mesh" not in config.to_json() and accel.ParallelismConfig(**{**config.to_json(), "cp_handler": None}) == config
    Accelerator(cpu=True, parallelism_config=accel.ParallelismConfig())
    assert accel.state.AcceleratorState().device_mesh.size() == 1 and accel.state.AcceleratorState().parallelism_config.total_size == 1
    accel.PartialState._reset_state()
    assert Accelerator(cpu=True).torch_device_mesh is None and accel.state.AcceleratorState().parallelism_config is None


def test_names_of_a_prepared_loader_are_listed(accelerator):
    loader = accelerator.prepare(torch.utils.data.DataLoader(list(range(4)), batch_size=2))
    assert {"total_batch_size", "set_epoch", "end_of_dataloader", "batch_size"} <= set(dir(loader))


def test_a_schedule_of_an_optimizer_that_is_not_prepared(accelerator):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    schedule = accelerator.prepare(torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5))
    optimizer.step()
    schedule.step()
    assert schedule.get_last_lr() == [0.5] and optimizer.param_groups[0]["lr"] == 0.5 and schedule.gradient_state.num_steps == 1


def test_zero_grad_of_an_optimizer_that_takes_no_argument(accelerator):
    class Plain(torch.optim.SGD):
        def zero_grad(self):
            super().zero_grad()

    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = accelerator.prepare(Plain([parameter], lr=1.0))
    accelerator.backward(parameter.sum())
    optimizer.zero_grad()
    assert parameter.grad is None
    with pytest.raises(ValueError, match="Plain.zero_grad.. takes no set_to_none"):
        optimizer.zero_grad(set_to_none=True)


@pytest.mark.parametrize("value", [[1, 2], {}, {"step": 3}, {"step": 3, "weight": accel.ones(2)}])
def test_values_are_saved_as_torch_saves_them_by_default(value, tmp_path):
    accel.utils.save(value, tmp_path / "value.bin")
    assert str(accel.utils.load(tmp_path / "value.bin"))[:3] == str(value)[:3]
    torch.load(tmp_path / "value.bin", weights_only=True)


def test_scopes_give_nothing_to_their_body(accelerator):
    model = accelerator.prepare(torch.nn.Linear(1, 1))
    for scope in (accelerator.autocast(), accelerator.accumulate(model), accelerator.no_sync(model)):
        with scope as given:
            assert given is None


def test_ranks_along_an_axis_that_splits_get_the_same_rows_of_rank_0(ranks):
    printed = ranks("""
        import torch
        from torch.utils.data import DataLoader, IterableDataset
        from accel import Accelerator, DataLoaderConfiguration, ParallelismConfig
        class Stream(IterableDataset):
            def __iter__(self):
                yield from range(7)
        config = DataLoaderConfiguration(dispatch_batches=True)
        accelerator = Accelerator(cpu=True, parallelism_config=ParallelismConfig(tp_size=2, dp_replicate_size=2), dataloader_config=config)
        loader = accelerator.prepare(DataLoader(Stream(), batch_size=2))
        batches, metrics = [], []
        for batch in loader:
            batches.append(batch.tolist())
            metrics += accelerator.gather_for_metrics(batch).tolist()
        print(batches, metrics)
        accelerator.end_training()
    """, num_processes=4)
    rows = [[[0, 1], [4, 5]], [[2, 3], [6, 0]]]
    assert printed == [f"{part} [0, 1, 2, 3, 4, 5, 6]\n" for part in (rows[0], rows[0], rows[1], rows[1])]


@pytest.mark.parametrize("value", ["torch.tensor([r, r + 10])", "(r, 'x')", "{'a': r}", "'ab'"])
def test_items_of_any_value_are_gathered_for_metrics(ranks, value):
    printed = ranks(f"""
        import torch
        from accel import Accelerator
        accelerator = Accelerator(cpu=True)
        r = accelerator.process_index
        every = [list({value}) for r in range(2)]
        assert str(accelerator.gather_for_metrics({value}, use_gather_object=True)) == str(every[0] + every[1])
        accelerator.end_training()
    """)
    assert printed == ["", ""]


WRONG = {"None": None, "a text": "model", "an optimizer": torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1)}
OF_MODELS = {
    "prepare_model": lambda accelerator, model, folder: accelerator.prepare_model(model),
    "unwrap_model": lambda accelerator, model, folder: accelerator.unwrap_model(model),
    "save_model": lambda accelerator, model, folder: accelerator.save_model(model, folder),
    "no_sync": lambda accelerator, model, folder: accelerator.no_sync(model),
    "accumulate": lambda accelerator, model, folder: accelerator.accumulate(model),
    "trigger_sync_in_backward": lambda accelerator, model, folder: accelerator.trigger_sync_in_backward(model),
    "verify_device_map": lambda accelerator, model, folder: accelerator.verify_device_map(model),
    "LocalSGD": lambda accelerator, model, folder: accel.local_sgd.LocalSGD(accelerator, model, 2),
    "extract_model_from_parallel": lambda accelerator, model, folder: accel.utils.extract_model_from_parallel(model),
    "save_fsdp_model": lambda accelerator, model, folder: accel.utils.save_fsdp_model(None, accelerator, model, folder),
    "load_checkpoint_in_model": lambda accelerator, model, folder: accel.load_checkpoint_in_model(model, folder),
    "load_checkpoint_and_dispatch": lambda accelerator, model, folder: accel.load_checkpoint_and_dispatch(model, folder),
    "dispatch_model": lambda accelerator, model, folder: accel.dispatch_model(model, {"": "cpu"}),
    "cpu_offload": lambda accelerator, model, folder: accel.cpu_offload(model),
    "disk_offload": lambda accelerator, model, folder: accel.disk_offload(model, folder),
    "infer_auto_device_map": lambda accelerator, model, folder: accel.infer_auto_device_map(model),
    "compute_module_sizes": lambda accelerator, model, folder: accel.utils.compute_module_sizes(model),
    "find_tied_parameters": lambda accelerator, model, folder: accel.utils.find_tied_parameters(model),
}
OF_OTHERS = {
    "prepare_optimizer": ("an optimizer", lambda accelerator, thing: accelerator.prepare_optimizer(thing)),
    "prepare_scheduler": ("a scheduler", lambda accelerator, thing: accelerator.prepare_scheduler(thing)),
    "prepare_data_loader": ("a loader", lambda accelerator, thing: accelerator.prepare_data_loader(thing)),
    "skip_first_batches": ("a loader", lambda accelerator, thing: accelerator.skip_first_batches(thing, 1)),
    "clip_grad_norm_": ("a parameter", lambda accelerator, thing: accelerator.clip_grad_norm_(thing, 1)),
    "clip_grad_value_": ("a parameter", lambda accelerator, thing: accelerator.clip_grad_value_(thing, 1)),
    "join_uneven_inputs": ("a model", lambda accelerator, thing: accelerator.join_uneven_inputs([thing])),
    "get_state_dict": ("a model", lambda accelerator, thing: accelerator.get_state_dict(thing)),
}


@pytest.mark.parametrize("function", OF_MODELS)
@pytest.mark.parametrize("what", WRONG)
def test_no_model_is_an_error_that_says_what_was_given(accelerator, tmp_path, function, what):
    with pytest.raises(TypeError, match=rf"^{function}\(\): a {type(WRONG[what]).__name__} is not a model; expected one of accel or torch$"):
        OF_MODELS[function](accelerator, WRONG[what], tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


@pytest.mark.parametrize("function", OF_OTHERS)
@pytest.mark.parametrize("thing", [None, "text"])
def test_other_things_of_a_wrong_kind_are_the_same_error(accelerator, function, thing):
    kind, call = OF_OTHERS[function]
    with pytest.raises(TypeError, match=rf"^{function}\(\): a {type(thing).__name__} is not {kind}; expected "):
        call(accelerator, thing)
    with pytest.raises(TypeError, match=r"^unscale_gradients\(\): a Linear is not a prepared optimizer"):
        accelerator.unscale_gradients(torch.nn.Linear(1, 1))
    for call in (accelerator.save_state, accelerator.load_state):
        with pytest.raises(TypeError, match="PathLike object, not Linear"):
            call(torch.nn.Linear(1, 1))


@pytest.mark.parametrize("function", ["no_sync", "accumulate", "trigger_sync_in_backward", "join_uneven_inputs"])
def test_a_model_that_was_never_prepared_is_named(accelerator, function):
    model = torch.nn.Linear(1, 1)
    with pytest.raises(ValueError, match=rf"^{function}\(\): the Linear is not prepared; expected what prepare\(\) returned$"):
        getattr(accelerator, function)([model] if function == "join_uneven_inputs" else model)
