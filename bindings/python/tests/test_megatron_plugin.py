# SPDX-License-Identifier: Apache-2.0
"""MegatronLMPlugin: its fields, and what the ranks do by them."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import pytest

import accel
from accel import Accelerator
from accel.megatron import layout
from accel.utils import MegatronLMDummyDataLoader, MegatronLMDummyScheduler, MegatronLMPlugin, patch_environment

# What Accelerate 1.15.0 gives a plugin of which nothing is said; context_parallel_size is 2 there.
DEFAULTS = {
    "tp_degree": 1, "pp_degree": 1, "use_custom_fsdp": False, "overlap_cpu_optimizer_d2h_h2d": False, "no_load_optim": False, "eod_mask_loss": False,
    "no_save_optim": False, "optimizer_cpu_offload": False, "use_precision_aware_optimizer": False, "decoder_last_pipeline_num_layers": None,
    "recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1, "attention_backend": True,
    "expert_model_parallel_size": 1, "context_parallel_size": 1, "attention_dropout": 0.0, "hidden_dropout": 0.0, "attention_softmax_in_fp32": True,
    "expert_tensor_parallel_size": 1, "calculate_per_token_loss": True, "use_rotary_position_embeddings": True, "num_micro_batches": 1,
    "gradient_clipping": 1.0, "sequence_parallelism": False, "recompute_activations": False, "use_distributed_optimizer": False,
    "pipeline_model_parallel_split_rank": None, "num_layers_per_virtual_pipeline_stage": None, "is_train_batch_min": True, "train_iters": None,
    "train_samples": None, "weight_decay_incr_style": "constant", "start_weight_decay": None, "end_weight_decay": None, "lr_decay_style": "linear",
    "lr_decay_iters": None, "lr_decay_samples": None, "lr_warmup_iters": None, "lr_warmup_samples": None, "lr_warmup_fraction": None, "min_lr": 0,
    "consumed_samples": None, "no_wd_decay_cond": None, "scale_lr_cond": None, "lr_mult": 1.0, "megatron_dataset_flag": False, "seq_length": None,
    "encoder_seq_length": None, "decoder_seq_length": None, "tensorboard_dir": None, "set_all_logging_options": False, "eval_iters": 100,
    "eval_interval": 1000, "return_logits": False, "custom_train_step_class": None, "custom_train_step_kwargs": None,
    "custom_model_provider_function": None, "custom_prepare_model_function": None, "custom_megatron_datasets_provider_function": None,
    "custom_get_batch_function": None, "custom_loss_function": None, "other_megatron_args": None}
VALUES = {"integer": ("3", 3), "flag": ("true", True), "number": ("0.5", 0.5)}


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """None of the variables, before and after."""
    for name in list(os.environ):
        if name.startswith(("MEGATRON_LM_", "ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_")):
            monkeypatch.delenv(name)


def test_defaults_are_those_of_the_reference():
    plugin = MegatronLMPlugin()
    assert {field.name: getattr(plugin, field.name) for field in dataclasses.fields(plugin)} == DEFAULTS
    assert plugin.said == set() and plugin.DDP_impl == "torch"
    assert plugin.megatron_lm_default_args["tensor_model_parallel_size"] == 1 and plugin.megatron_lm_default_args["clip_grad"] == 1.0
    recorded = json.loads((pathlib.Path(__file__).parent / "accelerate_names.json").read_text())["utils.megatron_lm"]
    import importlib.util

    if importlib.util.find_spec("torch") is not None:
        import accel.utils.megatron_lm as module

        assert not [name for name in recorded if not hasattr(module, name)]


def test_variables_and_the_code_which_goes_before_them():
    for name, (variable, kind, _) in MegatronLMPlugin._variables.items():
        assert variable == f"MEGATRON_LM_{name.upper()}"
        text, value = {"recompute_granularity": ("selective",) * 2, "recompute_method": ("block",) * 2}.get(name) or VALUES[kind]
        with patch_environment(**{variable: text}):
            plugin = MegatronLMPlugin()
        assert getattr(plugin, name) == value and type(getattr(plugin, name)) is type(value) and plugin.said == {name}
    with patch_environment(megatron_lm_tp_degree=4, megatron_lm_gradient_clipping=0.5):
        assert (MegatronLMPlugin(tp_degree=2).tp_degree, MegatronLMPlugin(tp_degree=2).gradient_clipping) == (2, 0.5)


def test_wrong_values_are_refused():
    for wrong in ({"tp_degree": 0}, {"num_micro_batches": 0}, {"recompute_granularity": "some"}, {"recompute_method": "all"}, {"lr_decay_style": "x"},
                  {"weight_decay_incr_style": "x"}, {"gradient_clipping": -1.0}, {"context_parallel_size": 1.5}):
        with pytest.raises((ValueError, TypeError), match=next(iter(wrong))):
            MegatronLMPlugin(**wrong)
    with pytest.raises(TypeError, match="megatron_lm_plugin is a object"):
        Accelerator(cpu=True, megatron_lm_plugin=object())


def test_arguments_of_megatron():
    plugin = MegatronLMPlugin(tp_degree=2, use_distributed_optimizer=True, consumed_samples=[5], tensorboard_dir="logs", set_all_logging_options=True,
                              other_megatron_args={"vocab_file": "v"})
    given = plugin.megatron_lm_default_args
    assert plugin.DDP_impl == given["DDP_impl"] == "local" and plugin.consumed_samples == given["consumed_samples"] == [5, 0, 0]
    assert given["tensorboard_dir"] == "logs" and given["log_params_norm"] is True and given["vocab_file"] == "v"
    plugin.set_training_args(2, 3)
    assert (given["micro_batch_size"], given["data_parallel_size"], given["global_batch_size"]) == (2, 3, 6)
    plugin.set_mixed_precision("bf16")
    assert given["bf16"] is True and "fp16" not in given
    plugin = MegatronLMPlugin(train_samples=10)
    plugin.set_training_args(1, 2)
    with pytest.warns(UserWarning, match="Ignoring `train_samples`"):
        plugin.set_scheduler_args(MegatronLMDummyScheduler(None, total_num_steps=20, warmup_num_steps=4))
    assert (plugin.train_iters, plugin.lr_warmup_iters, plugin.train_samples) == (10, 2, None)


@pytest.mark.parametrize("said, world, sizes", [
    ({}, 1, {}), ({}, 4, {"dp_replicate": 4}), ({"tp_degree": 2}, 4, {"tp": 2, "dp_replicate": 2}),
    ({"tp_degree": 2, "context_parallel_size": 2}, 8, {"tp": 2, "cp": 2, "dp_replicate": 2}),
    ({"pp_degree": 2, "use_distributed_optimizer": True}, 4, {"pp": 2, "dp_shard": 2}), ({"use_custom_fsdp": True}, 2, {"dp_shard": 2}),
    ({"expert_model_parallel_size": 2}, 2, {"dp_shard": 2, "ep": 2}),
    ({"expert_model_parallel_size": 2, "tp_degree": 2, "expert_tensor_parallel_size": 2}, 4, {"tp": 2, "dp_shard": 2, "ep": 2})])
def test_sizes_of_the_mesh(said, world, sizes):
    with patch_environment(world_size=world):
        plugin, sharding, config = layout.choose(MegatronLMPlugin(**said), None, None, None, None)
    assert {axis: config.size_of(axis) for axis in ("pp", "dp_replicate", "dp_shard", "cp", "sp", "tp", "ep") if config.size_of(axis) > 1} == sizes
    strategy = ("FULL_SHARD" if plugin.use_custom_fsdp else "SHARD_GRAD_OP" if plugin.use_distributed_optimizer else
                "NO_SHARD" if plugin.expert_model_parallel_size > 1 else None)
    assert getattr(getattr(sharding, "sharding_strategy", None), "name", None) == strategy


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="need 2 processes, or a multiple of that; there are 1"):
        Accelerator(cpu=True, megatron_lm_plugin=MegatronLMPlugin(tp_degree=2))
    with pytest.raises(ValueError, match="expert_tensor_parallel_size=2: expected 1, or tp_degree, which is 1"):
        Accelerator(cpu=True, megatron_lm_plugin=MegatronLMPlugin(expert_tensor_parallel_size=2))
    for name, other in {"fsdp_plugin": accel.FullyShardedDataParallelPlugin(), "parallelism_config": accel.ParallelismConfig(),
                        "deepspeed_plugin": accel.DeepSpeedPlugin()}.items():
        with pytest.raises(ValueError, match=f"megatron_lm_plugin and {name} both"):
            Accelerator(cpu=True, megatron_lm_plugin=MegatronLMPlugin(), **{name: other})
    with patch_environment(accelerate_use_fsdp="true"), pytest.raises(ValueError, match="by the variable ACCELERATE_USE_FSDP"):
        Accelerator(cpu=True, megatron_lm_plugin=MegatronLMPlugin())


def test_the_state_knows_the_plugin():
    with patch_environment(accelerate_use_megatron_lm="true", megatron_lm_num_micro_batches=3):
        accelerator = Accelerator(cpu=True)
        assert accelerator.distributed_type == "MEGATRON_LM" and accelerator.state.megatron_lm_plugin.num_micro_batches == 3
        assert os.environ["ACCELERATE_USE_MEGATRON_LM"] == "true"
    assert Accelerator(cpu=True).state.megatron_lm_plugin is accelerator.state.megatron_lm_plugin
    assert accelerator.is_main_process and accelerator.is_last_process
    accel.AcceleratorState._reset_state(True)
    assert Accelerator(cpu=True).state.megatron_lm_plugin is None


def test_main_is_the_last_process(ranks):
    printed = ranks("""
        from accel import Accelerator
        from accel.utils import MegatronLMPlugin
        accelerator = Accelerator(cpu=True, megatron_lm_plugin=MegatronLMPlugin(), log_with="jsonl", project_dir=".")
        accelerator.init_trackers("run", {"a": 1})
        accelerator.log({"loss": 3.0}, step=1)
        accelerator.print("only once")
        print(accelerator.process_index, accelerator.is_main_process, accelerator.is_local_main_process)
        accelerator.end_training()
    """)
    assert [text.split() for text in printed] == [["0", "False", "False"], ["only", "once", "1", "True", "True"]]


def test_the_last_process_goes_first(ranks, tmp_path):
    printed = ranks("""
        import os, pathlib, time
        from accel import Accelerator
        from accel.utils import MegatronLMPlugin
        accelerator = Accelerator(cpu=True, megatron_lm_plugin=MegatronLMPlugin())
        for name in ("main_process_first", "local_main_process_first"):
            made = pathlib.Path(os.environ["FOLDER"], name)
            with getattr(accelerator, name)():
                if accelerator.is_main_process:
                    time.sleep(0.3)
                    made.touch()
                print(made.exists())
            try:
                with getattr(accelerator, name)():
                    if accelerator.is_last_process:
                        raise KeyError(name)
            except KeyError:
                print("raised")
    """, FOLDER=tmp_path)
    assert [text.split() for text in printed] == [["True", "True"], ["True", "raised", "True", "raised"]]


def test_a_launch_gives_the_ranks_their_settings(launcher, tmp_path):
    (tmp_path / "job.yaml").write_text("distributed_type: MEGATRON_LM\nmixed_precision: 'no'\nnum_processes: 2\nuse_cpu: true\n"
                                       "megatron_lm_config:\n  megatron_lm_tp_degree: 2\n  megatron_lm_sequence_parallelism: true\n")
    (tmp_path / "train.py").write_text(
        "import accel\n"
        "accelerator = accel.Accelerator()\n"
        "plugin = accelerator.state.megatron_lm_plugin\n"
        "accelerator.print(accelerator.distributed_type.value, plugin.tp_degree, plugin.sequence_parallelism, plugin.num_micro_batches)\n")
    command = [launcher, "launch", "--config-file", str(tmp_path / "job.yaml"), "--megatron_lm_num_micro_batches", "3", "--", sys.executable,
               str(tmp_path / "train.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.split() == ["MEGATRON_LM", "2", "True", "3"], done.stdout + done.stderr


def test_stand_ins():
    scheduler = MegatronLMDummyScheduler("optimizer", 10, 2, name="x")
    assert (scheduler.optimizer, scheduler.total_num_steps, scheduler.warmup_num_steps, scheduler.kwargs) == ("optimizer", 10, 2, {"name": "x"})
    loader = MegatronLMDummyDataLoader(data_path=["a"], micro_batch_size=2)
    assert loader.dataset_args["megatron_dataset_flag"] is True and loader.dataset_args["data_path"] == ["a"]
    accelerator = Accelerator(cpu=True, megatron_lm_plugin=MegatronLMPlugin(megatron_dataset_flag=True))
    with pytest.raises(NotImplementedError, match="megatron_dataset_flag: the indexed datasets of Megatron-LM"):
        loader.get_train_valid_test_datasets_provider(accelerator)
