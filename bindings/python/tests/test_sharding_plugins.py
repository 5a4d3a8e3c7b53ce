# SPDX-License-Identifier: Apache-2.0
"""Settings of sharding: FullyShardedDataParallelPlugin and DeepSpeedPlugin, from code and from the environment."""

import base64
import dataclasses
import functools
import json
import os

import pytest

import accel
from accel import Accelerator, DeepSpeedPlugin, FullyShardedDataParallelPlugin, capi, nn
from accel.parallel import sharding_types
from accel.commands import to_fsdp2
from accel.utils import (DummyOptim, HfDeepSpeedConfig, deepspeed_required, disable_fsdp_ram_efficient_loading, enable_fsdp_ram_efficient_loading,
                         get_active_deepspeed_plugin, patch_environment)

STRATEGIES = ["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"]


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """None of the variables, before and after."""
    for name in list(os.environ):
        if name.startswith(("FSDP_", "ACCELERATE_")):
            monkeypatch.delenv(name)
    kept = dict(os.environ)
    yield
    for name in set(os.environ) - set(kept):
        del os.environ[name]


def model():
    return nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))


def test_choices_are_members_names_or_numbers():
    types = sharding_types.types()
    for number, name in enumerate(STRATEGIES, 1):
        for given in (name, name.lower(), str(number), number, types.ShardingStrategy(number)):
            assert FullyShardedDataParallelPlugin(sharding_strategy=given).sharding_strategy.value == number
        with patch_environment(fsdp_sharding_strategy=name):
            plugin = FullyShardedDataParallelPlugin()
            assert plugin.sharding_strategy.value == number and plugin.reshard_after_forward is None
    for name, number in (("BACKWARD_PRE", 1), ("backward_post", 2), ("1", 1)):
        assert FullyShardedDataParallelPlugin(backward_prefetch=name).backward_prefetch.value == number
    assert FullyShardedDataParallelPlugin(backward_prefetch="NO_PREFETCH").backward_prefetch is None
    for wrong in ({"sharding_strategy": "most"}, {"sharding_strategy": 6}, {"backward_prefetch": "x"}, {"state_dict_type": "x"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            FullyShardedDataParallelPlugin(**wrong)


def test_the_version_decides_what_is_there(caplog):
    one, two = FullyShardedDataParallelPlugin(), FullyShardedDataParallelPlugin(fsdp_version=2)
    assert (one.state_dict_type.name, two.state_dict_type.name) == ("FULL_STATE_DICT", "SHARDED_STATE_DICT")
    assert one.state_dict_config.offload_to_cpu and one.state_dict_config.rank0_only and two.state_dict_config.offload_to_cpu
    assert two.reshard_after_forward is True and two.sharding_strategy is None and two.sync_module_states is None
    with patch_environment(fsdp_version=2, fsdp_reshard_after_forward="false"):
        assert FullyShardedDataParallelPlugin().reshard_after_forward is False
    wrong = ({"reshard_after_forward": True}, {"fsdp_version": 2, "reshard_after_forward": "FULL_SHARD"}, {"fsdp_version": 3},
             {"fsdp_version": 2, "forward_prefetch": True}, {"fsdp_version": 2, "state_dict_type": "LOCAL_STATE_DICT"},
             {"activation_checkpointing_offload": True, "fsdp_version": 2}, {"min_num_params": 2.5, "auto_wrap_policy": "SIZE_BASED_WRAP"},
             {"activation_checkpointing_offload": True, "activation_checkpointing": True}, {"auto_wrap_policy": "EVERY_WRAP"})
    for settings in wrong:
        with pytest.raises(ValueError):
            FullyShardedDataParallelPlugin(**settings)
    caplog.clear()
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, backward_prefetch="BACKWARD_PRE", use_orig_params=True, sync_module_states=True)
    assert plugin.backward_prefetch is plugin.use_orig_params is plugin.sync_module_states is None
    assert len(caplog.records) == 1 and "backward_prefetch is not supported in FSDP2" in caplog.text


def test_what_checkpoints_have_can_be_changed():
    plugin = FullyShardedDataParallelPlugin(state_dict_type="FULL_STATE_DICT")
    plugin.set_state_dict_type("SHARDED_STATE_DICT")
    assert plugin.state_dict_type.name == "SHARDED_STATE_DICT" and not hasattr(plugin.state_dict_config, "rank0_only")


def test_mixed_precision_is_a_policy_of_the_version():
    known, types = sharding_types.dtypes(), sharding_types.types()
    half = known["bf16"]
    for given in ("bf16", "fp8", {"param_dtype": half, "reduce_dtype": half, "buffer_dtype": half}):
        assert FullyShardedDataParallelPlugin(mixed_precision_policy=given).mixed_precision_policy == types.MixedPrecision(half, half, half)
    second = FullyShardedDataParallelPlugin(fsdp_version=2, mixed_precision_policy="bf16")
    assert second.mixed_precision_policy == types.MixedPrecisionPolicy(half, half, half)
    plugin = FullyShardedDataParallelPlugin(mixed_precision_policy="fp32")
    plugin.set_mixed_precision("bf16")  # there is one already
    assert plugin.mixed_precision_policy.param_dtype == known["fp32"]
    plugin.set_mixed_precision(half, buffer_autocast=True, override=True)
    assert plugin.mixed_precision_policy == types.MixedPrecision(half, half, known["fp32"])
    for wrong in ("int8", {"param_dtype": half}, {"param_dtype": half, "reduce_dtype": half, "buffer_dtype": "x"}, types.MixedPrecisionPolicy()):
        with pytest.raises(ValueError):
            FullyShardedDataParallelPlugin(mixed_precision_policy=wrong)


def test_offload_is_a_class_of_the_version():
    types = sharding_types.types()
    assert FullyShardedDataParallelPlugin(cpu_offload=True).cpu_offload == types.CPUOffload(offload_params=True)
    assert isinstance(FullyShardedDataParallelPlugin(fsdp_version=2, cpu_offload=True).cpu_offload, types.CPUOffloadPolicy)
    assert type(FullyShardedDataParallelPlugin(fsdp_version=2).cpu_offload) is types.OffloadPolicy
    for version, other in ((1, types.OffloadPolicy()), (2, types.CPUOffload())):
        with pytest.raises(ValueError, match="cpu_offload"):
            FullyShardedDataParallelPlugin(fsdp_version=version, cpu_offload=other)
    with patch_environment(fsdp_offload_params="true"):
        assert FullyShardedDataParallelPlugin().cpu_offload.offload_params


def test_policies_are_completed_for_a_model():
    plugin = FullyShardedDataParallelPlugin(auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap="Linear")
    plugin.set_auto_wrap_policy(model())
    assert isinstance(plugin.auto_wrap_policy, functools.partial) and plugin.auto_wrap_policy.keywords == {"transformer_layer_cls": {nn.Linear}}
    with patch_environment(fsdp_auto_wrap_policy="TRANSFORMER_BASED_WRAP", fsdp_transformer_cls_to_wrap="T5Layer,Linear"):
        plugin = FullyShardedDataParallelPlugin()
    assert plugin.transformer_cls_names_to_wrap == ["T5Layer", "Linear"]
    with pytest.raises(ValueError, match="Could not find the transformer layer class T5Layer in the model."):
        plugin.set_auto_wrap_policy(model())
    with patch_environment(fsdp_auto_wrap_policy="SIZE_BASED_WRAP", fsdp_min_num_params=20):
        plugin = FullyShardedDataParallelPlugin()
    plugin.set_auto_wrap_policy(model())
    assert plugin.auto_wrap_policy.keywords == {"min_num_params": 20}
    plugin = FullyShardedDataParallelPlugin(auto_wrap_policy="SIZE_BASED_WRAP", min_num_params=0)
    plugin.set_auto_wrap_policy(model())
    assert plugin.auto_wrap_policy is None


def test_efficient_loading_follows_the_environment():
    enable_fsdp_ram_efficient_loading()
    assert FullyShardedDataParallelPlugin().cpu_ram_efficient_loading is True and os.environ["ACCELERATE_USE_FSDP"] == "True"
    disable_fsdp_ram_efficient_loading()
    assert FullyShardedDataParallelPlugin().cpu_ram_efficient_loading is False
    with pytest.warns(UserWarning, match="sync_module_states cannot be False"):
        plugin = FullyShardedDataParallelPlugin(cpu_ram_efficient_loading=True, sync_module_states=False)
    assert plugin.sync_module_states is True and os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] == "True"


def test_what_the_engine_is_told():
    options = FullyShardedDataParallelPlugin(sharding_strategy="SHARD_GRAD_OP", mixed_precision_policy="bf16", ignored_modules=r".*\.1").to_engine()
    assert (options.enabled, options.sharding_strategy, options.state_dict_type) == (1, 2, 1)
    assert (options.param_dtype, options.reduce_dtype, options.ignored_modules) == ("bfloat16", "bfloat16", r".*\.1")
    assert options.backward_prefetch == options.sync_module_states == options.reshard_after_forward == capi.ACCEL_UNSET
    unsaid, said = FullyShardedDataParallelPlugin().to_engine(), FullyShardedDataParallelPlugin(sharding_strategy="FULL_SHARD").to_engine()
    assert unsaid.sharding_strategy == capi.ACCEL_UNSET and said.sharding_strategy == capi.ACCEL_SHARDING_STRATEGY_FULL_SHARD
    assert FullyShardedDataParallelPlugin(fsdp_version=2).to_engine().reshard_after_forward == capi.ACCEL_UNSET
    assert FullyShardedDataParallelPlugin(fsdp_version=2, reshard_after_forward=True).to_engine().reshard_after_forward == 1
    changed = FullyShardedDataParallelPlugin()
    changed.sharding_strategy = type(changed.sharding_strategy).SHARD_GRAD_OP
    assert changed.to_engine().sharding_strategy == capi.ACCEL_SHARDING_STRATEGY_SHARD_GRAD_OP
    assert FullyShardedDataParallelPlugin(backward_prefetch="NO_PREFETCH").to_engine().backward_prefetch == 3
    assert FullyShardedDataParallelPlugin(reshard_after_forward="NO_SHARD").to_engine().sharding_strategy == 3
    second = FullyShardedDataParallelPlugin(fsdp_version=2, reshard_after_forward=False, auto_wrap_policy="SIZE_BASED_WRAP", min_num_params=7).to_engine()
    assert (second.reshard_after_forward, second.auto_wrap_policy, second.min_num_params) == (0, 2, 7)
    assert second.sharding_strategy == capi.ACCEL_UNSET
    net = model()
    named = FullyShardedDataParallelPlugin(ignored_modules=[dict(net.named_modules())["1"]], auto_wrap_policy="TRANSFORMER_BASED_WRAP",
                                           transformer_cls_names_to_wrap=["Linear"]).to_engine(net)
    assert (named.ignored_modules, named.transformer_cls_names_to_wrap) == ("1", "Linear")
    with pytest.raises(NotImplementedError, match="function of the program"):
        FullyShardedDataParallelPlugin(auto_wrap_policy=lambda *_: True).to_engine()


def test_groups_of_ranks_and_offload_beyond_the_reference():
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, reshard_after_forward=4, offload_optimizer=True, offload_folder="fast")
    options = plugin.to_engine()
    assert (options.reshard_after_forward, options.reshard_group_size, options.offload_optimizer, options.offload_folder) == (1, 4, 1, "fast")
    assert FullyShardedDataParallelPlugin(fsdp_version=2).to_engine().offload_optimizer == capi.ACCEL_UNSET
    with patch_environment(fsdp_version=2, fsdp_reshard_after_forward=8):
        assert FullyShardedDataParallelPlugin().reshard_after_forward == 8
    for wrong in (0, -2, 2.5, "some"):
        with pytest.raises(ValueError, match="expected True, False, or a number of ranks"):
            FullyShardedDataParallelPlugin(fsdp_version=2, reshard_after_forward=wrong)


def test_functions_that_need_deepspeed():
    required = deepspeed_required(lambda: 5)
    assert required() == 5  # there is no job
    accelerator = Accelerator(cpu=True)
    with pytest.raises(ValueError, match="expected Accelerator\\(deepspeed_plugin"):
        required()
    accel.AcceleratorState._reset_state(True)
    accelerator = Accelerator(cpu=True, deepspeed_plugin=DeepSpeedPlugin())
    assert required() == 5 and accelerator.deepspeed_engine_wrapped is None


def test_configuration_files_of_version_1_become_those_of_version_2(tmp_path, caplog):
    yaml = pytest.importorskip("yaml", reason="there is no pyyaml")
    old = {"distributed_type": "FSDP", "fsdp_config": {
        "fsdp_sharding_strategy": "SHARD_GRAD_OP", "fsdp_backward_prefetch": "BACKWARD_PRE", "fsdp_forward_prefetch": True, "fsdp_min_num_params": 9,
        "fsdp_own": 1, "fsdp_version": 1}}
    given, made = tmp_path / "old.yaml", tmp_path / "new.yaml"
    given.write_text(yaml.safe_dump(old))
    parser = to_fsdp2.to_fsdp2_command_parser()
    to_fsdp2.to_fsdp2_command(parser.parse_args(["--config_file", str(given), "--output_file", str(made)]))
    new = yaml.safe_load(made.read_text())
    assert new == {"distributed_type": "FSDP", "fsdp_config": {"fsdp_reshard_after_forward": False, "fsdp_min_num_params": 9, "fsdp_own": 1,
                                                               "fsdp_version": 2}}
    assert "fsdp_backward_prefetch is left out" in caplog.text and "fsdp_forward_prefetch is left out" in caplog.text
    assert to_fsdp2.convert_config_to_fsdp2(new) is new and to_fsdp2.convert_config_to_fsdp2({"x": 1}) == {"x": 1}
    with pytest.raises(FileExistsError):
        to_fsdp2.to_fsdp2_command(parser.parse_args(["--config_file", str(given), "--output_file", str(made)]))
    with pytest.raises(ValueError, match="--output_file must be provided"):
        to_fsdp2.to_fsdp2_command(parser.parse_args(["--config_file", str(given)]))
    with pytest.raises(FileNotFoundError):
        to_fsdp2.to_fsdp2_command(parser.parse_args(["--config_file", "nowhere", "--overwrite"]))
    to_fsdp2.to_fsdp2_command(parser.parse_args(["--config_file", str(given), "--overwrite"]))
    assert yaml.safe_load(given.read_text()) == new
    given.write_text("")
    with pytest.raises(ValueError, match="Config file is empty"):
        to_fsdp2.load_config(given)


def test_an_accelerator_has_its_plugin():
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2)
    accelerator = Accelerator(cpu=True, mixed_precision="bf16", fsdp_plugin=plugin)
    assert accelerator.state.fsdp_plugin is plugin and accelerator.deepspeed_plugin is None
    assert plugin.mixed_precision_policy.param_dtype == sharding_types.dtypes()["bf16"]
    assert accelerator.distributed_type == "NO" and not accelerator.is_fsdp2  # one process has the whole model
    prepared = accelerator.prepare(model())
    assert prepared(accel.ones(1, 4)).shape == (1, 2)
    accel.AcceleratorState._reset_state(True)
    with patch_environment(accelerate_use_fsdp="true", fsdp_sharding_strategy="NO_SHARD"):
        assert Accelerator(cpu=True).state.fsdp_plugin.sharding_strategy.value == 3
    accel.AcceleratorState._reset_state(True)
    offloaded = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}
    prepared = Accelerator(cpu=True, deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=offloaded)).prepare(model())
    assert prepared(accel.ones(1, 4)).shape == (1, 2)


CONFIG = {"gradient_accumulation_steps": 1, "gradient_clipping": "auto", "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
          "fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"},
          "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto"}},
          "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}, "stage3_gather_16bit_weights_on_model_save": "auto"}}


def test_a_configuration_of_deepspeed_is_asked_by_dotted_names(tmp_path):
    path = tmp_path / "ds.json"
    path.write_text(json.dumps(CONFIG))
    encoded = base64.urlsafe_b64encode(json.dumps(CONFIG).encode()).decode()
    for given in (CONFIG, str(path), json.dumps(CONFIG), encoded):
        config = HfDeepSpeedConfig(given)
        assert config.is_zero3() and not config.is_zero2() and config.is_offload()
        assert config.get_value("optimizer.params.lr") == "auto" and config.get_value("not.there", 7) == 7
        assert config.is_true("zero_optimization.stage") and not config.is_false("bf16.enabled") and not config.is_true("not.there")
        config.del_config_sub_tree("optimizer")
        assert config.find_config_node("optimizer.params.lr") == (None, "lr")
        with pytest.raises(ValueError, match="no optimizer"):
            config.del_config_sub_tree("optimizer", must_exist=True)
    with pytest.raises(ValueError, match="Expected a string path to an existing deepspeed config"):
        HfDeepSpeedConfig("/no/such/file")


def test_a_plugin_of_deepspeed_fills_its_configuration():
    plugin = DeepSpeedPlugin(gradient_accumulation_steps=4, zero_stage=3, offload_param_device="nvme", offload_param_nvme_path="/fast")
    assert plugin.get_value("zero_optimization.offload_param") == {"device": "nvme", "nvme_path": "/fast"}
    assert plugin.get_value("zero_optimization.offload_optimizer.nvme_path") is None and plugin.is_zero3_init_enabled()
    with pytest.warns(UserWarning, match="Zero3 Init flag is only applicable for ZeRO Stage 3"):
        assert not DeepSpeedPlugin(zero_stage=2, zero3_init_flag=True).zero3_init_flag
    plugin = DeepSpeedPlugin(hf_ds_config=CONFIG, gradient_clipping=0.5, zero3_save_16bit_model=True)
    assert plugin.zero_stage == 3 and plugin.offload_param_device == "cpu" and plugin.get_value("gradient_clipping") == 0.5
    assert plugin.is_auto("optimizer.params.lr") and CONFIG["gradient_clipping"] == "auto"
    with patch_environment(accelerate_deepspeed_zero_stage=1, accelerate_gradient_clipping="auto", accelerate_gradient_accumulation_steps=3):
        plugin = DeepSpeedPlugin()
        assert (plugin.zero_stage, plugin.gradient_clipping, plugin.gradient_accumulation_steps) == (1, "auto", 3)
    with pytest.raises(ValueError, match="Please specify the ZeRO optimization config"):
        DeepSpeedPlugin(hf_ds_config={"gradient_clipping": 1.0})
    with patch_environment(accelerate_config_ds_fields="zero_stage,zero3_init_flag"), pytest.raises(ValueError, match="zero_stage: expected in DeepSpeed"):
        DeepSpeedPlugin(hf_ds_config=CONFIG)


def test_values_that_differ_are_one_error():
    plugin = DeepSpeedPlugin(hf_ds_config=CONFIG)
    values = {"optimizer.params.lr": 5e-5, "optimizer.params.weight_decay": 0.0, "gradient_clipping": 1.0, "train_batch_size": 16,
              "train_micro_batch_size_per_gpu": 16, "fp16.enabled": False, "bf16.enabled": True,
              "zero_optimization.stage3_gather_16bit_weights_on_model_save": False}
    plugin.deepspeed_config_process(**values)
    assert plugin.get_value("optimizer.params.lr") == 5e-5 and plugin.get_value("bf16.enabled") is True
    with pytest.raises(ValueError, match="Please correct") as error:
        plugin.deepspeed_config_process(**{**values, "optimizer.params.lr": 1e-5, "gradient_clipping": 2.0})
    assert "- ds optimizer.params.lr=5e-05 vs arg optimizer.params.lr=1e-05" in str(error.value)
    assert "- ds gradient_clipping=1.0 vs arg gradient_clipping=2.0" in str(error.value)
    plugin.deepspeed_config["optimizer"]["params"]["lr"] = "auto"
    del values["optimizer.params.lr"]
    with pytest.raises(ValueError, match="`optimizer.params.lr` not found in kwargs."):
        plugin.deepspeed_config_process(**values)


def test_precisions_of_deepspeed_agree_with_the_accelerators():
    for precision in ("bf16", "fp16", "no"):
        plugin = DeepSpeedPlugin()
        plugin.set_mixed_precision(precision)
        assert plugin.mixed_precision == precision
    plugin = DeepSpeedPlugin(hf_ds_config={"bf16": {"enabled": True}, "zero_optimization": {"stage": 2}})
    with pytest.raises(ValueError, match="cannot be set to `fp16` when `bf16` is set in the DeepSpeed config file."):
        plugin.set_mixed_precision("fp16")
    assert Accelerator(cpu=True, deepspeed_plugin=plugin).mixed_precision == "bf16"


def test_one_of_several_plugins_is_selected():
    plugins = {"student": DeepSpeedPlugin(zero_stage=2), "teacher": DeepSpeedPlugin(zero_stage=3)}
    accelerator = Accelerator(cpu=True, deepspeed_plugin=plugins)
    state = accelerator.state
    assert accelerator.distributed_type == "DEEPSPEED" and accelerator.deepspeed_plugin is plugins["student"] is get_active_deepspeed_plugin(state)
    state.select_deepspeed_plugin("teacher")
    assert state.deepspeed_plugin is plugins["teacher"] is state.get_deepspeed_plugin("teacher") and not plugins["student"].selected
    with pytest.raises(NotImplementedError, match="second `Accelerator`"):
        Accelerator(cpu=True, deepspeed_plugin=DeepSpeedPlugin())
    assert Accelerator(cpu=True).state.deepspeed_plugin is plugins["teacher"]
    with pytest.raises(KeyError, match="professor"):
        state.select_deepspeed_plugin("professor")
    with pytest.raises(ValueError, match="must be enabled manually"):
        plugins["student"].select()
    with pytest.raises(NotImplementedError):
        plugins["student"].selected = True
    accel.AcceleratorState._reset_state(True)
    with pytest.raises(ValueError, match="none were enabled"):
        get_active_deepspeed_plugin(Accelerator(cpu=True).state)
    for wrong, error in (({"deepspeed_plugin": {"x": 1}}, TypeError), ({"deepspeed_plugin": DeepSpeedPlugin(), "deepspeed_plugins": {}}, ValueError),
                         ({"deepspeed_plugin": DeepSpeedPlugin(), "fsdp_plugin": FullyShardedDataParallelPlugin()}, ValueError)):
        with pytest.raises(error):
            Accelerator(cpu=True, **wrong)


def test_deepspeed_clips_and_accumulates():
    config = {"gradient_accumulation_steps": 2, "gradient_clipping": 0.5, "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1}}
    accelerator = Accelerator(cpu=True, deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=config))
    net = nn.Linear(3, 1, bias=False)
    before = net.weight.detach().tolist()
    net, optimizer = accelerator.prepare(net, accel.optim.SGD(net.parameters(), lr=1.0))
    assert accelerator.gradient_accumulation_steps == 2 and accelerator.deepspeed_config["train_micro_batch_size_per_gpu"] == 1
    for _ in range(2):
        with accelerator.accumulate(net):
            accelerator.backward((net(accel.tensor([[100.0, -200.0, 300.0]])) * 10).sum())
            optimizer.step()
            optimizer.zero_grad()
    after = accelerator.unwrap_model(net, keep_fp32_wrapper=False).weight.detach().tolist()
    assert sum((new - old) ** 2 for new, old in zip(after[0], before[0])) ** 0.5 == pytest.approx(0.5, rel=1e-4)


def test_what_prepare_needs_under_deepspeed():
    accelerator = Accelerator(cpu=True, deepspeed_plugin=DeepSpeedPlugin(zero_stage=2))
    net = model()
    optimizer = accel.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="requires you to pass at least one of training or evaluation dataloaders"):
        accelerator.prepare(net, optimizer)
    loader = accel.DataLoader(accel.TensorDataset(accel.ones(8, 4)), batch_size=4)
    with pytest.raises(ValueError, match="You cannot create a `DummyOptim` without specifying an optimizer in the config file."):
        accelerator.prepare(net, DummyOptim(net.parameters()), loader)
    accelerator.prepare(net, optimizer, loader)
    assert accelerator.deepspeed_config["train_batch_size"] == 4 and accelerator.deepspeed_config["gradient_clipping"] == 1.0


def test_types_of_several_ranks_and_one_clipping_of_them(ranks):
    for printed in ranks("""
            import accel
            from accel import Accelerator, DeepSpeedPlugin, FullyShardedDataParallelPlugin, nn
            accelerator = Accelerator(cpu=True, fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=2))
            assert accelerator.distributed_type == "FSDP" and accelerator.is_fsdp2 and accelerator.is_composable_parallelism_enabled
            accel.AcceleratorState._reset_state(True)
            config = {"gradient_clipping": 0.5, "train_micro_batch_size_per_gpu": 2, "train_batch_size": 4, "zero_optimization": {"stage": 0}}
            accelerator = Accelerator(cpu=True, deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=config))
            assert accelerator.distributed_type == "DEEPSPEED"
            net = nn.Linear(2, 1, bias=False)
            net, optimizer = accelerator.prepare(net, accel.optim.SGD(net.parameters(), lr=1.0))
            inner = accelerator.unwrap_model(net, keep_fp32_wrapper=False)
            before = inner.weight.detach().tolist()[0]
            accelerator.backward(net(accel.tensor([[100.0 * (accelerator.process_index + 1), -200.0]])).sum())
            optimizer.step()
            after = inner.weight.detach().tolist()[0]
            print(round(sum((new - old) ** 2 for new, old in zip(after, before)) ** 0.5, 4), after)
            """):
        assert printed.startswith("0.5 ")


def test_what_the_header_adds_is_a_field():
    """An option that Accelerate lacks needs nothing by hand: it is a field of the plugin, and the engine gets it."""
    options = {option["name"]: option for option in capi.accel_options_describe("accel_fsdp_options_t")}
    fields = {field.name: field.default for field in dataclasses.fields(FullyShardedDataParallelPlugin)}
    assert list(fields)[21:] == [name for name in options if name in ("offload_optimizer", "offload_folder", "leaf_module_classes")]
    said_otherwise = {"enabled", "param_dtype", "reduce_dtype", "output_dtype", "cast_forward_inputs", "reshard_group_size"}
    assert set(options) - set(fields) == said_otherwise
    for name in list(fields)[21:]:
        value = {"flag": True, "text": "a", "integer": 2}[options[name]["kind"]]
        assert getattr(FullyShardedDataParallelPlugin(**{name: value}).to_engine(model()), name) == value
        assert fields[name] is None and getattr(FullyShardedDataParallelPlugin().to_engine(model()), name) in (None, capi.ACCEL_UNSET)
