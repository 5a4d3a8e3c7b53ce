# SPDX-License-Identifier: Apache-2.0
"""The sizes of the mesh, and the handlers that say how models are split along it, under Accelerate's names."""

import pytest

import accel
from accel import Accelerator, capi


def test_parallelism_config(monkeypatch):
    monkeypatch.setenv("PARALLELISM_CONFIG_TP_SIZE", "2")
    config = accel.ParallelismConfig(dp_shard_size=3)
    experts = accel.ParallelismConfig(dp_shard_size=3, ep_size=6)
    assert (experts.total_size, experts.to_engine()["expert_parallel_size"]) == (6, 6)
    assert (config.tp_size, config.total_size, config.data_parallel_size, config.non_data_parallel_size) == (2, 6, 3, 2)
    assert config.dp_dim_names == ["dp_shard"] and config.non_dp_dim_names == ["tp"] and config.active_mesh_dims == ["dp_shard", "tp"]
    assert config.fsdp_dim_names == ["dp_shard_cp"] and config.dp_shard_cp_dim_names == config.dp_cp_dim_names == ["dp_shard"]
    assert config.tp_enabled and not config.cp_enabled and accel.parallelism_config.ParallelismConfig is accel.ParallelismConfig
    for wrong, error in (({"tp_size": 0}, ValueError), ({"cp_backend": "ring"}, ValueError), ({"cp_size": 2, "sp_size": 2}, ValueError),
                         ({"tp_size": 1.5}, TypeError), ({"ep_size": 3}, ValueError),
                         ({"ep_size": 5, "dp_shard_size": 6}, ValueError), ({"tp_handler": 1}, ValueError), ({"cp_handler": "allgather"}, ValueError)):
        with pytest.raises(error, match=next(iter(wrong))):
            accel.ParallelismConfig(**wrong)
    with pytest.raises(ValueError, match=r"3 \(shard\) x 1 \(context\) x 2 \(tensor\) and there is 1 rank"):
        Accelerator(cpu=True, parallelism_config=config)
    monkeypatch.delenv("PARALLELISM_CONFIG_TP_SIZE")
    accelerator = Accelerator(cpu=True, parallelism_config=accel.ParallelismConfig())
    assert accelerator.data_parallel_rank == 0 and accelerator.torch_device_mesh.size("dp_cp") == 1
    assert repr(accelerator.torch_device_mesh).startswith("Mesh(pipeline 1, replicate 1, shard 1, context 1, tensor 1")
    with pytest.raises(accel.errors.NotFoundError, match="no axis 'expert'"):
        accelerator.torch_device_mesh.size("expert")
    assert accelerator.parallelism_config.get_device_mesh(accelerator.device.type).size("tp") == 1
    with pytest.raises(ValueError, match="get_device_mesh.'abacus'.: the ranks of this job are on"):
        accelerator.parallelism_config.get_device_mesh("abacus")


def test_options_of_experts():
    accelerator = Accelerator(cpu=True)
    layer = accel.nn.MixtureOfExperts(4, 3, num_experts=1, experts_per_token=1)
    with pytest.raises(ValueError, match="capacity_factor is -1"):
        accelerator.prepare_model(layer, expert_parallel={"capacity_factor": -1})
    with pytest.raises(TypeError, match="no setting 'capacity'"):
        accelerator.prepare_model(layer, expert_parallel={"capacity": 1})
    rows = accelerator.prepare_model(layer, expert_parallel={"capacity_factor": 0.5})(accel.ones(8, 4)).tolist()
    assert rows[3] == rows[0] != [0] * 4 and rows[4] == rows[7] == [0] * 4


def test_handlers_of_parallelism(monkeypatch):
    from accel.utils import DeepSpeedSequenceParallelConfig, TorchContextParallelConfig, TorchTensorParallelConfig

    config = accel.ParallelismConfig(tp_size=2, sp_size=3)
    assert (config.total_size, config.non_dp_dim_names, config.tp_enabled, config.sp_enabled) == (6, ["tp", "sp"], True, True)
    assert config.tp_handler == TorchTensorParallelConfig() and config.cp_handler is None and config.sp_handler.sp_seq_length_is_variable is True
    assert config.to_engine()["context_parallel_size"] == 3 and config.build_device_mesh("cpu") is None
    assert accel.ParallelismConfig(cp_size=2).cp_handler == TorchContextParallelConfig(cp_comm_strategy="allgather")
    beside = TorchTensorParallelConfig(enable_async_tp=True)
    assert beside.to_engine().overlap == capi.ACCEL_OVERLAP_YES and beside.to_engine({"overlap": "no"}).overlap == capi.ACCEL_OVERLAP_NO
    assert TorchTensorParallelConfig(enable_async_tp=True, overlap="auto").to_engine().overlap == capi.ACCEL_OVERLAP_AUTO
    for text, number in (("YES", capi.ACCEL_OVERLAP_YES), ("2", capi.ACCEL_OVERLAP_YES), ("No", capi.ACCEL_OVERLAP_NO), ("auto", capi.ACCEL_OVERLAP_AUTO)):
        monkeypatch.setenv("PARALLELISM_CONFIG_TP_OVERLAP", text)
        assert TorchTensorParallelConfig().to_engine().overlap == number
    for text in ("3", "-1", "perhaps", "\N{SUPERSCRIPT TWO}"):
        monkeypatch.setenv("PARALLELISM_CONFIG_TP_OVERLAP", text)
        with pytest.raises(ValueError, match="overlap='.*': expected one of 'auto', 'no', 'yes'"):
            TorchTensorParallelConfig().to_engine()
    monkeypatch.delenv("PARALLELISM_CONFIG_TP_OVERLAP")
    monkeypatch.setenv("PARALLELISM_CONFIG_TP_PLAN", "up colwise")
    options = TorchTensorParallelConfig(sequence_parallel=True).to_engine({"verify_gradients": 0})
    assert (options.plan, options.sequence_parallel, options.verify_gradients) == ("up colwise", 1, 0)
    with pytest.raises(TypeError, match="no setting 'plans'"):
        TorchTensorParallelConfig().to_engine({"plans": "none"})

    with pytest.raises(ValueError, match="expected the length, or the variable PARALLELISM_CONFIG_SP_SEQ_LENGTH"):
        DeepSpeedSequenceParallelConfig(sp_seq_length_is_variable=False)
    monkeypatch.setenv("PARALLELISM_CONFIG_SP_SEQ_LENGTH_IS_VARIABLE", "False")  # as a flag: bool("False") is True
    monkeypatch.setenv("PARALLELISM_CONFIG_SP_SEQ_LENGTH", "None")
    with pytest.raises(ValueError, match="there is no sp_seq_length"):
        DeepSpeedSequenceParallelConfig()
    monkeypatch.setenv("PARALLELISM_CONFIG_SP_SEQ_LENGTH", "64")
    assert DeepSpeedSequenceParallelConfig().sp_seq_length == 64
    for name in ("eager", "flex_attention", "other", "somebody/kernel"):
        with pytest.raises(ValueError, match=f"Invalid sp_attn_implementation: {name}"):
            DeepSpeedSequenceParallelConfig(sp_attn_implementation=name)
    for name in ("sdpa", "flash_attention_2", "kernels-community/flash-attn2"):
        assert DeepSpeedSequenceParallelConfig(sp_attn_implementation=name).sp_attn_implementation == name


def test_what_a_job_does_not_use_of_its_parallelism_is_said():
    from accel.utils import TorchTensorParallelConfig, TorchTensorParallelPlugin

    with pytest.warns(UserWarning, match="ParallelismConfig.tp_handler has no effect: tp_size is 1"):
        Accelerator(cpu=True, parallelism_config=accel.ParallelismConfig(tp_handler=TorchTensorParallelConfig()))
    with pytest.warns(FutureWarning, match="torch_tp_plugin is deprecated"):
        accelerator = Accelerator(cpu=True, torch_tp_plugin=TorchTensorParallelPlugin())
    assert accelerator.parallelism_config.tp_size == 1 and accelerator.state.torch_tp_plugin is None
    with pytest.raises(TypeError, match="torch_tp_plugin is a int"):
        Accelerator(cpu=True, torch_tp_plugin=2)


def test_axes_of_sequences_and_of_shards(ranks):
    printed = ranks("""
        from accel import Accelerator, FullyShardedDataParallelPlugin, ParallelismConfig, PartialState
        accelerator = Accelerator(cpu=True, parallelism_config=ParallelismConfig(sp_size=2))
        mesh, rank = accelerator.torch_device_mesh, accelerator.process_index
        assert mesh.mesh_dim_names == ("sp",) and mesh["sp"].size() == mesh.size("context") == 2
        assert accelerator.context_parallel_rank == mesh.get_local_rank("sp") == rank and accelerator.tensor_parallel_rank == 0
        PartialState._reset_state()
        try:
            Accelerator(cpu=True, fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=2), parallelism_config=ParallelismConfig(tp_size=2))
        except ValueError as error:
            print(error)
        """)
    assert printed == ["models are sharded under version 2 of FSDP's settings, and parallelism_config has no axis for it: expected dp_shard_size or "
                       "cp_size above 1\n"] * 2
