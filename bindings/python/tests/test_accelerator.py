# SPDX-License-Identifier: Apache-2.0
"""The training loop on one rank, its settings, checkpoints and tools; test_ranks.py has several ranks."""

import datetime
import os
import sys
from typing import NamedTuple

import pytest

import accel
from accel import (Accelerator, AutocastKwargs, DataLoader, DistributedDataParallelKwargs, GradientAccumulationPlugin, GradScalerKwargs,
                   InitProcessGroupKwargs, LocalSGD, ProjectConfiguration, TensorDataset, errors, nn, ops, optim)
from accel.nn import functional as F
from accel.utils import patch_environment


def parts(lr=0.1, rows=8, batch_size=2):
    accel.set_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    optimizer = optim.SGD(model.parameters(), lr=lr)
    x = accel.randn(rows, 3)
    loader = DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), batch_size=batch_size)
    return model, optimizer, loader, optim.lr_scheduler.StepLR(optimizer, 4, 0.5)


def train(accelerator, model, optimizer, loader, scheduler, epochs=1):
    losses = []
    for _ in range(epochs):
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(x), y)
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            losses.append(loss.item())
    return losses


def test_training(accelerator):
    things = accelerator.prepare(*parts())
    losses = train(accelerator, *things, epochs=20)
    assert sum(losses[-4:]) < sum(losses[:4]) and things[3].get_last_lr()[0] < 0.1
    assert accelerator.prepare(*things) == things and accelerator.prepare("other") == "other"
    assert accelerator.unwrap_model(things[0], keep_fp32_wrapper=False) is things[0].module
    assert accelerator.unwrap_model(things[0])(accel.ones(1, 3)).shape == (1, 2)
    inside = things[0].module
    for model in (things[0], accelerator.unwrap_model(things[0])):
        assert model.state_dict().keys() == inside.state_dict().keys() == dict(model.named_parameters()).keys()
        assert [path for path, _ in model.named_modules()] == [path for path, _ in inside.named_modules()]
    assert "Accelerator(" in repr(accelerator) and "Prepared(" in repr(things[0]) and "Prepared" in repr(things[1]) + repr(things[2])


def test_accumulation():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=3)
    model, optimizer, loader, scheduler = accelerator.prepare(*parts())
    synced = []
    for x, y in loader:
        with accelerator.accumulate(model):
            accelerator.backward(F.cross_entropy(model(x), y))
            norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
            accelerator.clip_grad_value_(list(model.parameters()), 0.5)
            optimizer.step()
            assert not accelerator.optimizer_step_was_skipped  # accumulating is not an update that was skipped
            synced.append((accelerator.sync_gradients, norm is not None))
            optimizer.zero_grad()
    assert synced == [(False,) * 2, (False,) * 2, (True,) * 2, (True,) * 2]  # the last: the end of the loader
    accelerator.gradient_accumulation_steps = 2
    assert accelerator.gradient_accumulation_steps == accelerator.gradient_state.num_steps == 2
    accelerator.free_memory()


def test_precision_and_scaling():
    handlers = [GradScalerKwargs(init_scale=4.0, enabled=True), AutocastKwargs(cache_enabled=True), DistributedDataParallelKwargs()]
    accelerator = Accelerator(cpu=True, mixed_precision="bf16", kwargs_handlers=handlers)
    model, optimizer, loader, scheduler = accelerator.prepare(*parts())
    assert accelerator.mixed_precision == "bf16" and accelerator.loss_scale == 4.0
    with accelerator.autocast():
        assert (accel.ones(2, 2) @ accel.ones(2, 2)).dtype == "bfloat16"
    with accelerator.autocast(AutocastKwargs(enabled=False)):
        assert (accel.ones(2, 2) @ accel.ones(2, 2)).dtype == "float32"
    assert model(accel.ones(1, 3)).dtype == "float32"
    accelerator.backward(F.cross_entropy(model(accel.ones(1, 3)), accel.tensor([0])))
    accelerator.unscale_gradients(optimizer)
    optimizer.step()
    accelerator.free_memory()


@pytest.mark.parametrize("settings, kind, text", [
    ({"mixed_precision": "fp17"}, ValueError, "expected one of"),
    ({"kwargs_handlers": [3]}, TypeError, "kwargs_handlers has a int"),
    ({"kwargs_handlers": [AutocastKwargs(), AutocastKwargs()]}, ValueError, "two AutocastKwargs"),
    ({"gradient_accumulation_steps": 2, "gradient_accumulation_plugin": GradientAccumulationPlugin(2)}, ValueError, "not both"),
    ({"gradient_accumulation_steps": -1}, ValueError, "gradient_accumulation_steps"),
    ({"log_with": "nothing"}, ValueError, "log_with='nothing'"),
    ({"rng_types": ["unknown"]}, ValueError, "unknown")])
def test_wrong_settings(settings, kind, text):
    with pytest.raises(kind, match=text):
        Accelerator(cpu=True, **settings)


def test_settings():
    plugin = GradientAccumulationPlugin(num_steps=4, sync_with_dataloader=False)
    accelerator = Accelerator(cpu=True, gradient_accumulation_plugin=plugin, split_batches=True,
                              kwargs_handlers=[InitProcessGroupKwargs(timeout=datetime.timedelta(seconds=5))])
    assert accelerator.gradient_accumulation_steps == 4 and accelerator.split_batches and not accelerator.gradient_state.sync_with_dataloader
    assert "timeout_ms = 5000" in accelerator.state.describe() and accelerator.device.type == "cpu"
    with pytest.raises(ValueError, match="mixed_precision"):
        Accelerator(mixed_precision="bf16")
    accel.PartialState._reset_state()
    with patch_environment(accelerate_mixed_precision="bf16", accelerate_gradient_accumulation_steps=3):
        accelerator = Accelerator(cpu=True)
        assert accelerator.mixed_precision == "bf16" and accelerator.gradient_accumulation_steps == 3
        accel.PartialState._reset_state()
        assert Accelerator(cpu=True, gradient_accumulation_steps=2).gradient_accumulation_steps == 2  # what is said goes first
    assert "ACCELERATE_MIXED_PRECISION" not in os.environ
    assert DistributedDataParallelKwargs(static_graph=True).to_kwargs() == {"static_graph": True}
    assert accel.DistributedType.NO == "NO" and "MULTI_CPU" in accel.DistributedType and "X" not in accel.DistributedType
    assert accelerator.distributed_type == accel.DistributedType.NO and "Num processes: 1" in repr(accelerator.state)


def test_what_is_not_there_is_refused():
    for method in ("file:///tmp/place", "tcp://host", "tcp://:1", 3):
        with pytest.raises(ValueError, match="init_method=.*: expected None, \"env://\" or"):
            Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(init_method=method)])
        with pytest.raises(ValueError, match="init_method"):
            accel.PartialState(cpu=True, init_method=method)
    with pytest.raises(TypeError, match="fsdp_plugin is a object"):
        Accelerator(cpu=True, fsdp_plugin=object())
    with pytest.raises(TypeError, match="'unknown'"):
        Accelerator(cpu=True, unknown=None)
    accelerator = Accelerator(cpu=True, deepspeed_plugin=None)
    with pytest.raises(NotImplementedError, match="dynamo_backend='tvm'.*fused kernels.*capture"):
        Accelerator(cpu=True, dynamo_backend="tvm").prepare(accel.nn.Linear(2, 1))
    with pytest.raises(AttributeError, match="no attribute 'unknown'"):
        accelerator.unknown  # noqa: B018
    if "torch" not in sys.modules:
        with pytest.raises(ImportError, match="torch.save"):
            accelerator.save({"thing": object()}, "file", safe_serialization=False)


def test_an_earlier_partial_state_still_holds():
    accel.PartialState(cpu=True, timeout=datetime.timedelta(seconds=7))
    accelerator = Accelerator(mixed_precision="bf16")
    assert "timeout_ms = 7000" in accelerator.state.describe() and accelerator.device.type == "cpu" and accelerator.mixed_precision == "bf16"


def test_process_control(accelerator, capsys):
    with accelerator.split_between_processes((1, 2)) as share:
        assert share == (1, 2)
    with accelerator.main_process_first(), accelerator.local_main_process_first():
        pass
    assert accelerator.on_main_process(lambda: 1)() == accelerator.on_process(process_index=0)(lambda: 1)() == 1
    accelerator.print("text", 1)
    assert capsys.readouterr().out == "text 1\n"
    accelerator.set_trigger()
    assert accelerator.check_trigger() and not accelerator.check_trigger()
    tree = {"a": (accel.ones(2), [accel.zeros(1)])}
    assert accelerator.gather(tree)["a"][0].tolist() == [1, 1] and isinstance(accelerator.gather(tree)["a"], tuple)
    assert accelerator.reduce(accel.ones(1), "mean", 2.0).item() == 2
    with pytest.raises(ValueError, match="reduction"):
        accelerator.reduce(accel.ones(1), "median")
    with pytest.raises(errors.KindError):
        accelerator.gather("text")


class Counter:
    def __init__(self):
        self.steps, self.seen = 0, accel.zeros(2)

    def state_dict(self):
        return {"steps": self.steps, "seen": self.seen}

    def load_state_dict(self, kept):
        self.steps, self.seen = kept["steps"], kept["seen"]


def test_checkpoints(tmp_path):
    project = ProjectConfiguration(project_dir=str(tmp_path), automatic_checkpoint_naming=True, total_limit=2)
    accelerator, counter = Accelerator(cpu=True, project_config=project), Counter()
    things = accelerator.prepare(*parts())
    accelerator.register_for_checkpointing(counter)
    train(accelerator, *things)
    counter.steps, counter.seen = 7, accel.ones(2)
    for _ in range(3):
        accelerator.save_state()
    assert sorted(os.listdir(tmp_path / "checkpoints")) == ["checkpoint_1", "checkpoint_2"] and accelerator.save_iteration == 3
    after = train(accelerator, *things)
    counter.steps = 0
    project.iteration = 0  # as in a new job
    accelerator.load_state()
    assert accelerator.save_iteration == 3
    assert counter.steps == 7 and counter.seen.tolist() == [1, 1] and train(accelerator, *things) == after
    accelerator.save_model(things[0], tmp_path)
    assert set(accel.load(tmp_path / "model.safetensors")) == set(accelerator.get_state_dict(things[0]))
    accelerator.save({"x": accel.ones(2)}, tmp_path / "x.safetensors")
    assert accel.load(tmp_path / "x.safetensors")["x"].tolist() == [1, 1]
    (tmp_path / "broken.safetensors").write_text("nothing")
    with pytest.raises(errors.FileError, match="broken.safetensors"):
        accel.load(tmp_path / "broken.safetensors")
    with pytest.raises(errors.NotFoundError):
        accelerator.load_state(tmp_path / "absent")
    with pytest.raises(ValueError, match="state_dict"):
        accelerator.register_for_checkpointing(object())
    accelerator.free_memory()


# Regression: after `load_state()` and `skip_first_batches()` the next epoch began in its middle.
def test_the_epoch_behind_a_resumed_one_is_whole(tmp_path):
    """As scripts of Accelerate resume: load_state(), then skip_first_batches() for the rest of the epoch."""
    def begin():
        accel.PartialState._reset_state()
        accelerator = Accelerator(cpu=True)
        return accelerator, accelerator.prepare(DataLoader(list(range(6)), batch_size=1))

    accelerator, loader = begin()
    for step, _ in enumerate(loader):
        if step == 1:
            accelerator.save_state(tmp_path / "state")
            break
    accelerator, loader = begin()
    accelerator.load_state(tmp_path / "state")
    rest = accelerator.skip_first_batches(loader, 2)
    assert [batch.item() for batch in rest] == [2, 3, 4, 5] and [batch.item() for batch in loader] == [0, 1, 2, 3, 4, 5]


def test_hooks_of_checkpoints(accelerator, tmp_path):
    model = accelerator.prepare(nn.Linear(2, 2))

    def save(models, weights, output_dir):
        assert models == [model] and weights[0].keys() == {"weight", "bias"}
        with open(f"{output_dir}/extra", "w") as file:
            file.write("of the hook")

    def load(models, input_dir):
        assert open(f"{input_dir}/extra").read() == "of the hook"
        models.pop().load_state_dict({"weight": accel.ones(2, 2), "bias": accel.zeros(2)})

    saving, loading = accelerator.register_save_state_pre_hook(save), accelerator.register_load_state_pre_hook(load)
    accelerator.save_state(tmp_path / "one")
    accelerator.load_state(tmp_path / "one")
    assert model.weight.sum().item() == 4
    saving.remove()
    loading.remove()
    accelerator.save_state(tmp_path / "two")
    assert not (tmp_path / "two/extra").exists()
    accelerator.load_state(tmp_path / "two")
    with pytest.raises(TypeError, match="no setting 'map'"):
        accelerator.load_state(tmp_path / "two", load_kwargs={"map": 1})


def test_placement_of_single_objects():
    accelerator = Accelerator(cpu=True, device_placement=False)
    model, loader = accelerator.prepare(nn.Linear(2, 2), DataLoader([1.0, 2.0], batch_size=2), device_placement=[True, False])
    assert model(accel.ones(1, 2)).device == "cpu" and next(iter(loader)).tolist() == [1, 2] and loader.total_batch_size == 2
    accel.PartialState._reset_state()
    accelerator = Accelerator(cpu=True)
    assert accelerator.prepare(nn.Linear(2, 2), device_placement=[False])(accel.ones(1, 2)).device == "cpu"
    with pytest.raises(ValueError, match="2 entries for 1 objects"):
        accelerator.prepare(nn.Linear(1, 1), device_placement=[None, None])
    evaluated = accelerator.prepare_model(nn.Linear(2, 2), evaluation_mode=True)
    assert evaluated(accel.ones(1, 2)).shape == (1, 2)
    accel.AcceleratorState._reset_state(True)
    accelerator = Accelerator(cpu=True, deepspeed_plugin=accel.DeepSpeedPlugin())
    with pytest.raises(ValueError, match="You can't customize device placements with DeepSpeed or Megatron-LM"):
        accelerator.prepare(nn.Linear(1, 1), device_placement=[True])


def test_batch_size_search():
    tried = []

    @accel.find_executable_batch_size(starting_batch_size=100)
    def work(batch_size, goal):
        tried.append(batch_size)
        if batch_size > goal:
            raise MemoryError("too much")
        return batch_size

    assert work(85) == 81 and tried == [100, 90, 81] and work(85) == 81
    with pytest.raises(MemoryError):
        work(0)
    with pytest.raises(TypeError, match="batch size is given"):
        work(8, 85)

    @accel.find_executable_batch_size(starting_batch_size=8)
    def broken(batch_size):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        broken()


def test_seeds_and_generators(accelerator):
    accel.set_seed(3)
    first = accel.randn(4)
    accel.set_seed(3, device_specific=True)
    assert (accel.randn(4) == first).all()
    generator = accel.Generator(5)
    kept = generator.get_state()
    generator.manual_seed(6).set_state(kept)
    assert (generator.get_state() == kept).all()
    kept = accel.random.get_rng_state()
    first = accel.randn(4)
    accel.random.set_rng_state(kept)
    assert (accel.randn(4) == first).all()
    accel.synchronize_rng_states(["torch", "generator"], generator)
    with pytest.raises(ValueError, match="needs the generator"):
        accel.synchronize_rng_states(["generator"])


def test_local_sgd_and_scopes(accelerator):
    model, optimizer, loader, _ = accelerator.prepare(*parts())
    with LocalSGD(accelerator, model, 2) as local_sgd:
        for x, y in loader:
            with accelerator.no_sync(model), accelerator.trigger_sync_in_backward(model):
                accelerator.backward(F.cross_entropy(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
            local_sgd.step()
        assert local_sgd.state_dict() is not None
    with accelerator.join_uneven_inputs([model]):
        pass
    assert accelerator.step_report()["steps"] >= 0
    assert accelerator.memory_report()["cpu"]["in_use"] >= 0


def test_memory_that_is_kept_goes_back(accelerator):
    for wrong in ({"cpu_kernels": "mkl"}, {"cpu_memory": "all"}):
        with pytest.raises(ValueError, match="expected one of auto, default"):
            Accelerator(**wrong)
    accel.zeros(1 << 20).relu()
    accel.utils.release_memory()
    assert accelerator.memory_report()["cpu"]["kept"] == 0


def test_logging_and_progress(accelerator, caplog, capsys):
    from accel.logging import get_logger

    logger = get_logger("tests", "INFO")
    logger.info("all", main_process_only=False, in_order=True)
    logger.warning_once("once")
    logger.warning_once("once")
    assert [record.message for record in caplog.records] == ["[RANK 0] all", "[RANK 0] once"]
    pytest.importorskip("tqdm")
    assert list(accel.tqdm(range(3))) == [0, 1, 2] and "3/3" in capsys.readouterr().err
    accel.PartialState._reset_state()
    with pytest.raises(RuntimeError, match="before logging"):
        logger.info("too early")


def test_the_engine_logs_to_python(caplog):
    from accel.logging import log_engine

    optimizer = optim.SGD(nn.Linear(1, 1), lr=1.0)
    kept = optim.lr_scheduler.StepLR(optimizer, 3).state_dict()
    optim.lr_scheduler.StepLR(optimizer, 2).load_state_dict(kept)
    try:
        log_engine(None)
        optim.lr_scheduler.StepLR(optimizer, 2).load_state_dict(kept)
    finally:
        log_engine()
    assert [(record.name, record.levelname) for record in caplog.records] == [("accel", "WARNING")] and "step_size" in caplog.text


def test_environment_helpers():
    from accel.utils import convert_bytes, get_int_from_env, merge_dicts, str_to_bool

    assert str_to_bool("Yes") == 1 and str_to_bool("off") == 0 and convert_bytes(2048) == "2.0 KB"
    assert merge_dicts({"a": {"b": 1}}, {"a": {"c": 2}}) == {"a": {"b": 1, "c": 2}}
    with patch_environment(first=-1, second=4):
        assert get_int_from_env(["FIRST", "SECOND"], 9) == 4
    with pytest.raises(ValueError):
        str_to_bool("perhaps")
    assert accel.utils.convert_dict_to_env_variables({"A": 1, "B": "x;y"}) == ["A=1\n"]
    assert accel.utils.convert_file_size_to_int("2GiB") == 2**31 and accel.utils.convert_file_size_to_int("1.5KB") == 1500
    with pytest.raises(ValueError, match="size '12' is not known"):
        accel.utils.convert_file_size_to_int("12")
    assert accel.utils.dtype_byte_size(accel.bfloat16) == 2 and accel.utils.is_pytest_available() and not accel.utils.is_npu_available()
    model = nn.Sequential(nn.Linear(1, 1), nn.ReLU())
    assert accel.utils.get_module_children_bottom_up(model) == [*model, model]
    assert [path for path, _ in accel.utils.get_module_children_bottom_up(model, return_fqns=True)] == ["0", "1", ""]
    assert accel.utils.dtype_byte_size("bool") == 1 / 8 and accel.utils.dtype_byte_size(accel.utils.CustomDtype.INT4) == 1 / 2
    assert str_to_bool("on", to_bool=True) is True and str_to_bool("n", to_bool=True) is False
    assert accel.utils.recursive_getattr(model, "training.real") and accel.utils.get_pretty_name(model) == "Sequential"
    with accel.utils.clear_environment():
        assert not os.environ
    assert os.environ

    @accel.utils.purge_accelerate_environment
    def sets():
        os.environ["ACCELERATE_MIXED_PRECISION"] = "bf16"

    sets()
    assert "ACCELERATE_MIXED_PRECISION" not in os.environ


class Pair(NamedTuple):
    first: object
    second: object


def test_functions_on_trees():
    from accel import utils
    from accel.tensors import trees

    tree = {"a": Pair(accel.arange(6).reshape(3, 2), [accel.ones(3, dtype="float16")]), "text": "stays"}
    applied = trees.recursively_apply(lambda tensor, add: tensor + add, tree, 1)
    assert isinstance(applied["a"], Pair) and applied["a"].first[0].tolist() == [1, 2] and applied["text"] == "stays"
    assert trees.listify(tree)["a"].second == [[1, 1, 1]] and trees.find_batch_size(tree) == 3
    assert trees.convert_to_fp32(tree)["a"].second[0].dtype == "float32"
    assert trees.send_to_device(tree, "cpu", skip_keys="a")["a"].first.shape == (3, 2)
    assert trees.slice_tensors({"x": accel.arange(4)}, slice(1, None))["x"].tolist() == [1, 2, 3]
    assert utils.concatenate([(accel.ones(1),), (accel.zeros(2),)])[0].tolist() == [1, 0, 0]
    assert utils.pad_input_tensors(accel.ones(3), 3, 2).shape == (4,)
    with pytest.raises(TypeError, match=r"^Unsupported types \(<class 'str'>\) passed to `<lambda>`"):
        trees.recursively_apply(lambda tensor: tensor, tree, error_on_other_type=True)
    with pytest.raises(ZeroDivisionError):
        trees.recursively_apply(lambda tensor: 1 / 0, tree)
    with pytest.raises(ValueError, match="no step"):
        trees.slice_tensors(tree, slice(0, 2, 2))


def test_other_backwards(accelerator):
    import json

    model, optimizer, loader, _ = accelerator.prepare(*parts())
    loader.set_epoch(2)
    x, y = next(iter(loader))
    accelerator.backward_sum(ops.cross_entropy_loss(model(x), y, reduction=2), len(y))
    summed = [parameter.grad.clone() for parameter in model.parameters()]
    optimizer.zero_grad()
    accelerator.backward(F.cross_entropy(model(x), y))
    assert all(ops.allclose(one, parameter.grad) for one, parameter in zip(summed, model.parameters()))
    accelerator.free_memory()
    lomo_model = nn.Linear(3, 2)
    lomo = accelerator.prepare(optim.LOMO(lomo_model, lr=0.1))
    before = lomo_model.weight.clone()
    accelerator.lomo_backward(F.cross_entropy(lomo_model(x), y), lomo.param_groups[0]["lr"])
    assert (lomo_model.weight != before).any()
    whole = lomo_model.weight.detach().clone()
    accelerator.backward(F.cross_entropy(lomo_model(x), y), learning_rate=0.0)
    assert (lomo_model.weight == whole).all()
    accelerator.backward(F.cross_entropy(lomo_model(x), y), learning_rate=0.5)
    assert (lomo_model.weight != whole).any()
    assert "operations" in json.loads(accel.collectives.flight_record())


def test_versions():
    import re

    from accel import capi
    from conftest import ROOT

    assert ".".join(map(str, capi.accel_version())) == accel.__version__
    assert re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE).group(1) == accel.__version__


# Regression: a second `Accelerator` kept the settings of the first.
def test_each_accelerator_has_its_settings():
    """As in Accelerate: accumulation is that of the latest, everything else is each one's own."""
    first = Accelerator(cpu=True, gradient_accumulation_steps=2, keep_output_dtype=True)
    second = Accelerator(cpu=True, gradient_accumulation_steps=4, step_scheduler_with_optimizer=False, split_batches=True, true_divisor=True,
                         rng_types=["torch"], device_placement=False)
    assert first.gradient_accumulation_steps == second.gradient_accumulation_steps == 4
    said = second.state.describe()
    for line in ("gradient_accumulation_steps = 4 (call)", "step_scheduler_with_optimizer = no (call)", "split_batches = yes (call)",
                 "true_divisor = yes (call)", "rng_types = torch (call)", "device_placement = no (call)", "keep_output_dtype = no (default)"):
        assert line in said
    assert first.rng_types == ["generator"] and second.rng_types == ["torch"] and not first.split_batches and second.split_batches
    checked = Accelerator(cpu=True, verify_replicas_every=5)
    assert "verify_replicas_every = 5 (call)" in checked.state.describe() and checked.verify_replicas() == 1
    third = Accelerator(cpu=True, gradient_accumulation_plugin=GradientAccumulationPlugin(3, sync_with_dataloader=False))
    assert third.gradient_accumulation_steps == 3 and not third.gradient_state.sync_with_dataloader
    assert Accelerator(cpu=True).gradient_accumulation_steps == 1 and first.gradient_state.sync_with_dataloader


def test_accumulation_can_be_changed():
    accelerator = Accelerator(cpu=True)
    state = accelerator.gradient_state
    assert state.plugin_kwargs == {"num_steps": 1, "adjust_scheduler": False, "sync_with_dataloader": True, "sync_each_batch": False,
                                   "true_divisor": False}
    accel.state.GradientState(GradientAccumulationPlugin(3, sync_with_dataloader=False, sync_each_batch=True))
    assert accelerator.gradient_accumulation_steps == 3 and not state.adjust_scheduler and not state.sync_with_dataloader
    assert state.plugin_kwargs["sync_each_batch"] and not accelerator.state.fork_launched
    accel.state.GradientState(GradientAccumulationPlugin(adjust_scheduler=True))  # replaces all
    assert state.num_steps == 1 and state.adjust_scheduler and state.sync_with_dataloader
    plain = Accelerator(cpu=True, gradient_accumulation_plugin=GradientAccumulationPlugin(2))
    assert plain.gradient_accumulation_steps == 2 and not plain.gradient_state.adjust_scheduler  # as in Accelerate


# Regression: settings of `GradientState` could not be set, and one that it did not have was taken without effect.
def test_the_gradient_state_is_set_as_the_references():
    accelerator = Accelerator(cpu=True)
    state = accel.state.GradientState()
    for set_it in (lambda value: setattr(state, "sync_gradients", value), state._set_sync_gradients):
        for value in (False, True):
            set_it(value)
            assert state.sync_gradients is accelerator.sync_gradients is value
    state.plugin_kwargs = {"num_steps": 3, "sync_with_dataloader": False}
    assert (accelerator.gradient_accumulation_steps, state.sync_with_dataloader, state.adjust_scheduler) == (3, False, False)
    state.plugin_kwargs.update({"num_steps": 4}, adjust_scheduler=True)
    state.plugin_kwargs["sync_each_batch"] = True
    assert state.plugin_kwargs == {"num_steps": 4, "adjust_scheduler": True, "sync_with_dataloader": False, "sync_each_batch": True, "true_divisor": False}
    state.num_steps, state.adjust_scheduler, state.sync_with_dataloader, state.sync_each_batch = 2, False, True, False
    assert accelerator.gradient_accumulation_steps == state.num_steps == 2
    assert not state.adjust_scheduler and state.sync_with_dataloader and not state.sync_each_batch
    with pytest.raises(TypeError, match="no setting 'steps'"):
        state.plugin_kwargs = {"steps": 3}
    loader = accelerator.prepare(DataLoader([1, 2]))
    state.dataloader_references += [loader]
    assert state.active_dataloader is loader and state.in_dataloader
    state.dataloader_references = [None]
    assert state.active_dataloader is None and state.dataloader_references == []
    for name in ("remainder", "end_of_dataloader", "active_dataloader", "is_xla_gradients_synced", "unknown"):
        with pytest.raises(AttributeError, match=name):
            setattr(state, name, True)


# Regression: `fork_launched` was what the environment said at the start of the process.
def test_the_environment_says_who_forked(accelerator, monkeypatch):
    """Also when it changes behind the first state."""
    assert not accelerator.state.fork_launched
    monkeypatch.setenv("FORK_LAUNCHED", "1")
    assert accelerator.state.fork_launched and accel.PartialState().fork_launched


def test_hooks_of_settings_are_registered_by_prepare():
    with pytest.raises(NotImplementedError, match=r"register_comm_hook\(\) of the prepared module"):
        DistributedDataParallelKwargs().register_comm_hook(nn.Linear(1, 1))


def test_one_process_checks_what_several_do():
    accelerator = Accelerator(cpu=True)
    weight = accel.ones(2, 2).requires_grad_()
    assert accelerator.gather(weight.sum()).shape == (1,) and not accelerator.gather(weight).requires_grad
    assert accel.utils.gather_object({"rank": 0}) == [{"rank": 0}]
    with pytest.raises(ValueError, match="same length"), accelerator.split_between_processes({"a": [1], "b": [1, 2]}):
        pass
    rows = accel.zeros(2)
    with accelerator.split_between_processes(rows) as share:
        share.fill_(1)
    assert rows.tolist() == [0, 0]


# Regression: a search over settings trained each time with the same ones.
def test_a_search_over_settings_trains_each_with_its_own():
    for steps in (1, 3):
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=steps)
        model, loader = accelerator.prepare(nn.Linear(1, 1), DataLoader(list(range(6)), batch_size=1))
        synced = []
        for _ in loader:
            with accelerator.accumulate(model):
                synced.append(accelerator.sync_gradients)
        assert synced == [number % steps == steps - 1 for number in range(6)]


def test_schedulers_follow_the_accelerator_that_prepared_them():
    linked, free = (Accelerator(cpu=True, gradient_accumulation_steps=2, step_scheduler_with_optimizer=link) for link in (True, False))
    rates = []
    for accelerator in (linked, free):
        optimizer = optim.SGD(nn.Linear(1, 1), lr=1.0)
        optimizer, scheduler = accelerator.prepare(optimizer, optim.lr_scheduler.ExponentialLR(optimizer, 0.5))
        with accelerator.accumulate():
            scheduler.step()
        rates += scheduler.get_last_lr()
    assert rates == [1.0, 0.5]


def test_checkpoints_hold_what_their_accelerator_prepared(tmp_path):
    first, second = Accelerator(cpu=True), Accelerator(cpu=True)
    one, two = first.prepare(nn.Linear(1, 1)), second.prepare(nn.Linear(2, 2))
    first.save_state(tmp_path / "first")
    second.save_state(tmp_path / "second")
    kept = one.weight.tolist()
    one.weight.detach().zero_()
    first.load_state(tmp_path / "first")
    assert one.weight.tolist() == kept
    with pytest.raises(errors.Error):
        second.load_state(tmp_path / "first")
    first.free_memory()
    second.save_state(tmp_path / "again")
    assert two.weight.shape == (2, 2)


def test_what_a_second_accelerator_cannot_have_is_refused():
    Accelerator(cpu=True)
    for settings, text in (({"kwargs_handlers": [InitProcessGroupKwargs(timeout=datetime.timedelta(seconds=5))]}, "timeout_ms"),
                           ({"num_threads": 3}, "num_threads"), ({"cpu_kernels": "default"}, "cpu_kernels"),
                           ({"mixed_precision": "bf16"}, "mixed_precision")):
        with pytest.raises(ValueError, match=text):
            Accelerator(cpu=True, **settings)
    assert Accelerator(cpu=True, mixed_precision="no").mixed_precision == "no"


# Regression: settings of wrong kinds were accepted: seeds below 0, 2.5 steps, buckets of no size.
def test_wrong_kinds_of_settings():
    for settings, kind, text in (({"project_config": 3}, TypeError, "project_config is a int"),
                                 ({"split_batches": "yes"}, TypeError, "split_batches is a str"),
                                 ({"gradient_accumulation_plugin": GradientAccumulationPlugin(2.5)}, TypeError, "2.5"),
                                 ({"gradient_accumulation_steps": 2.5}, TypeError, "2.5"),
                                 ({"rng_types": ["npu"]}, NotImplementedError, "npu")):
        with pytest.raises(kind, match=text):
            Accelerator(cpu=True, **settings)
    accelerator = Accelerator(cpu=True, dataloader_config=accel.DataLoaderConfiguration(data_seed=-1))
    with pytest.raises(ValueError, match="data_seed=-1"):
        accelerator.prepare(DataLoader([1]))
    for value in (-1, float("nan")):
        accelerator = Accelerator(cpu=True, kwargs_handlers=[DistributedDataParallelKwargs(bucket_cap_mb=value)])
        with pytest.raises(ValueError, match="bucket_cap_mb"):
            accelerator.prepare(nn.Linear(1, 1))


def test_generators_that_are_the_default_of_the_reference(accelerator):
    for types in (None, ["generator"], [accel.RNGType.GENERATOR], ["torch", "generator"]):
        assert Accelerator(cpu=True, rng_types=types).rng_types == (types or ["generator"])
    assert set(accel.RNGType.list()) >= {"xla", "npu", "neuron", "generator"}


# Regression: errors of an `Accelerator`'s own properties were hidden.
def test_errors_of_properties_are_told(accelerator):
    accelerator.project_configuration = 3
    with pytest.raises(AttributeError, match="'int' object has no attribute 'logging_dir'"):
        accelerator.logging_dir  # noqa: B018


# Regression: `clip_grad_norm_()` gave a float instead of a tensor.
def test_the_norm_is_a_tensor(accelerator):
    layer = accelerator.prepare(nn.Linear(2, 1, bias=False))
    accelerator.backward(layer(accel.tensor([[3.0, 4.0]])).sum())
    assert accelerator.clip_grad_norm_(layer.parameters(), 1.0).item() == pytest.approx(5)


def test_reductions_and_their_defaults(accelerator):
    import inspect

    assert inspect.signature(accel.utils.reduce).parameters["reduction"].default == "mean"
    assert inspect.signature(accelerator.reduce).parameters["reduction"].default == "sum"


def test_trees_of_tensors(accelerator):
    from accel import utils

    tree = {"a": (accel.ones(2, 3), [accel.zeros(1, dtype="int64")]), "b": "text"}
    assert utils.get_shape(tree) == {"a": ([2, 3], [[1]]), "b": "text"} and utils.find_device(tree) == "cpu" and utils.find_device(["x"]) is None
    described = utils.get_data_structure(tree)
    assert described["a"][0] == utils.TensorInformation((2, 3), accel.float32) and utils.is_tensor_information(described["a"][1][0])
    made = utils.initialize_tensors(described)
    assert utils.get_shape(made) == utils.get_shape(tree) and made["a"][1][0].dtype == "int64" and isinstance(made["a"], tuple)
    assert utils.find_batch_size(tree) == utils.ignorant_find_batch_size(tree) == 2
    assert utils.ignorant_find_batch_size(["text"]) is utils.ignorant_find_batch_size([]) is None
    assert utils.convert_outputs_to_fp32(lambda x: {"y": x.half()})(accel.ones(1))["y"].dtype == "float32"
    assert utils.copy_tensor_to_devices(accel.ones(2)).tolist() == [1, 1]
    with pytest.raises(ValueError, match="0 ranks"):
        utils.copy_tensor_to_devices()
    assert accelerator.gather_for_metrics([accel.ones(1), accel.ones(2)], use_gather_object=True)[1].shape == (2,)
    with pytest.raises(TypeError, match="the items of a list"):
        accelerator.gather_for_metrics(3, use_gather_object=True)
    assert len(accelerator.gather_for_metrics(accel.ones(2), use_gather_object=True)) == 2


def test_the_machine():
    from accel import utils

    assert utils.are_libraries_initialized("pytest", "no_such_package") == ["pytest"]
    assert utils.compare_versions("2.13.0+cpu", ">=", "2.13") and not utils.compare_versions("2.9", ">", "2.10")
    assert utils.compare_versions("pytest", ">", "1.0")
    with pytest.raises(ValueError, match="expected one of"):
        utils.compare_versions("1", "~", "2")
    with patch_environment(rank=3, mv2_comm_world_size=8, local_rank=1, mpi_localnranks=2, world_size=-1):
        assert utils.get_cpu_distributed_information() == utils.CPUInformation(3, 8, 1, 2)
    utils.check_os_kernel()
    assert utils.check_cuda_p2p_ib_support() in (True, False) and utils.get_current_device_type()[0] in ("cpu", "cuda")


def test_only_what_was_patched_is_restored():
    with patch_environment(accel_test="1"):
        os.environ["ACCEL_TEST_OTHER"] = "2"
    assert "ACCEL_TEST" not in os.environ and os.environ.pop("ACCEL_TEST_OTHER") == "2"


def test_purged_classes():
    from accel.utils import purge_accelerate_environment

    @purge_accelerate_environment
    class Tests:
        def test_sets(self):
            os.environ["ACCELERATE_TEST"] = "1"

        def other(self):
            return "other"

    class Below(Tests):
        def test_more(self):
            os.environ["ACCELERATE_TEST"] = "2"

    class Deeper(Below):
        def __init_subclass__(cls, **kwargs):
            super().__init_subclass__(**kwargs)
            cls.known = True

        def test_most(self):
            os.environ["ACCELERATE_TEST"] = "3"

    class Deepest(Deeper):
        def test_all(self):
            os.environ["ACCELERATE_TEST"] = "4"

    assert Tests().other() == "other" and isinstance(Tests(), Tests) and Deepest.known
    for test in (Tests().test_sets, Below().test_more, Below().test_sets, Deeper().test_most, Deepest().test_all):
        test()
        assert "ACCELERATE_TEST" not in os.environ


def test_members_of_the_reference():
    """Each is there, or says what is missing."""
    accelerator = Accelerator(cpu=True)
    for name in ("tensor_parallel_rank", "data_parallel_shard_rank"):
        with pytest.raises(RuntimeError, match="parallelism is not configured"):
            getattr(accelerator, name)
    with pytest.raises(ValueError, match="no plugins of DeepSpeed"):
        accelerator.state.get_deepspeed_plugin("x")
    assert accelerator.is_fsdp2 is accelerator.state.is_fsdp2 is accelerator.is_composable_parallelism_enabled is False
    assert accelerator.fp8_backend == "NO" and accel.PartialState().default_device.type in ("cpu", "cuda")
    utils = accel.utils
    assert utils.WEIGHTS_INDEX_NAME == "pytorch_model.bin.index.json" and utils.ComputeEnvironment.LOCAL_MACHINE == "LOCAL_MACHINE"
    assert not utils.is_peft_model(nn.Linear(1, 1)) and not utils.is_habana_gaudi1() and utils.is_weights_only_available()
    cleaned = utils.clean_state_dict_for_safetensors({"a": (shared := accel.ones(2)), "b": shared, "c": accel.ones(2, 3).T})
    assert list(cleaned) == ["a", "c"] and cleaned["c"].is_contiguous()


def test_backward_hands_its_arguments_on(accelerator):
    model = accelerator.prepare(nn.Linear(2, 1, bias=False))
    x = accel.ones(1, 2)
    x.requires_grad = True
    loss = (model(x) * model(x)).sum()
    accelerator.backward(loss, inputs=[x], create_graph=True)
    assert all(parameter.grad is None for parameter in model.parameters())
    penalty = (x.grad * x.grad).sum()
    x.grad = None
    accelerator.backward(penalty)
    assert all(parameter.grad is not None for parameter in model.parameters())
    for parameter in model.parameters():
        parameter.grad = None
    x.grad = None


def test_files_have_metadata_and_ties(tmp_path):
    from accel import checkpoint

    weight = accel.ones(3)
    accel.save({"a": weight, "b": weight}, tmp_path / "t.safetensors", metadata={"format": "pt"})
    assert checkpoint.load_metadata(tmp_path / "t.safetensors") == {"format": "pt", "b": "a"}
    assert accel.load(tmp_path / "t.safetensors")["b"].tolist() == [1, 1, 1]
