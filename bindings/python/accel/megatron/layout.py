# SPDX-License-Identifier: Apache-2.0
"""Which ranks do what under Megatron-LM's settings: the sizes of the mesh, and how models are sharded over the data ranks."""

from .. import capi
from ..parallel.fsdp import FullyShardedDataParallelPlugin
from ..parallel.parallelism_config import ParallelismConfig
from ..parallel.parallelism_handlers import TorchTensorParallelConfig
from ..state.environment import get_int_from_env, parse_flag_from_env
from ..state.handlers import check_types
from ..state.job import Job, current, is_made
from .plugin import MegatronLMPlugin

_RANKS = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
_OTHERS = {"fsdp_plugin": "ACCELERATE_USE_FSDP", "deepspeed_plugin": "ACCELERATE_USE_DEEPSPEED",
           "parallelism_config": "ACCELERATE_USE_PARALLELISM_CONFIG"}


def choose(given, fsdp, parallelism, deepspeed, tensor_parallel):
    """From the arguments of an Accelerator: its MegatronLMPlugin, or None, and the fsdp_plugin and parallelism_config, which follow from one."""
    check_types(megatron_lm_plugin=(given, MegatronLMPlugin))
    known = Job.megatron_lm_plugin
    if given is None and known is None and parse_flag_from_env("ACCELERATE_USE_MEGATRON_LM"):
        given = MegatronLMPlugin()
    if given is None and known is None:
        return None, fsdp, parallelism
    for (name, variable), other in zip(_OTHERS.items(), (fsdp, deepspeed, parallelism or tensor_parallel)):
        if other is not None or parse_flag_from_env(variable):
            raise ValueError(f"megatron_lm_plugin and {name}{'' if other is not None else f' (by the variable {variable})'} both say how models are "
                             "split and sharded: expected one of them")
    if given is None:
        return known, None, Job.parallelism_config
    data = data_ranks(given, _world_size())
    return given, _sharding(given, data), _parallelism(given, data)


def data_ranks(plugin, world):
    """Over how many of the ranks data are shared out: the others split a model, or a sequence, with them."""
    if plugin.expert_tensor_parallel_size not in (1, plugin.tp_degree):
        raise ValueError(f"expert_tensor_parallel_size={plugin.expert_tensor_parallel_size}: expected 1, or tp_degree, which is {plugin.tp_degree}")
    if plugin.pp_degree > 1 and plugin.context_parallel_size > 1:
        raise NotImplementedError(f"pp_degree={plugin.pp_degree} and context_parallel_size={plugin.context_parallel_size}: stages have whole sequences; "
                                  "expected one of them to be 1")
    split = plugin.tp_degree * plugin.pp_degree * plugin.context_parallel_size
    if world % split != 0:
        raise ValueError(f"tp_degree={plugin.tp_degree}, pp_degree={plugin.pp_degree} and context_parallel_size={plugin.context_parallel_size} need "
                         f"{split} processes, or a multiple of that; there are {world}")
    return world // split


def _world_size():
    return capi.accel_num_processes(current()) if is_made() else get_int_from_env(_RANKS, 1)


def _strategy(plugin):
    if plugin.use_custom_fsdp:
        return "FULL_SHARD"
    if plugin.use_distributed_optimizer or plugin.optimizer_cpu_offload:
        return "SHARD_GRAD_OP"
    return "NO_SHARD" if plugin.expert_model_parallel_size > 1 else None  # ranks that share experts out have one copy of the model


def _sharding(plugin, data):
    strategy = _strategy(plugin)
    if strategy is None or data == 1 and not plugin.optimizer_cpu_offload:
        return None
    return FullyShardedDataParallelPlugin(
        fsdp_version=1, sharding_strategy=strategy, auto_wrap_policy="TRANSFORMER_BASED_WRAP" if strategy == "FULL_SHARD" else "NO_WRAP",
        backward_prefetch="BACKWARD_PRE", cpu_offload=False, state_dict_type="FULL_STATE_DICT", forward_prefetch=False, use_orig_params=True,
        sync_module_states=True, activation_checkpointing=False, cpu_ram_efficient_loading=False,
        offload_optimizer=True if plugin.optimizer_cpu_offload else None)


def _parallelism(plugin, data):
    is_sharded = _strategy(plugin) is not None
    handler = TorchTensorParallelConfig(sequence_parallel=True) if plugin.tp_degree > 1 and plugin.sequence_parallelism else None
    return ParallelismConfig(
        pp_size=plugin.pp_degree, dp_replicate_size=1 if is_sharded else data, dp_shard_size=data if is_sharded else 1,
        cp_size=plugin.context_parallel_size, sp_size=1, tp_size=plugin.tp_degree, tp_handler=handler, ep_size=plugin.expert_model_parallel_size)


def stages_of(plugin, model):
    """How a model is trained in stages, by fields of accel_pipeline_options_t."""
    if plugin is None or plugin.pp_degree == 1:
        return {}
    options, layers = {"micro_batches": plugin.num_micro_batches}, model.config.num_hidden_layers
    each, last = plugin.num_layers_per_virtual_pipeline_stage, plugin.decoder_last_pipeline_num_layers
    if each is not None:
        if last is not None or layers % (each * plugin.pp_degree) != 0:
            raise ValueError(f"num_layers_per_virtual_pipeline_stage={each}: expected a number of which pp_degree={plugin.pp_degree} times, or a multiple of "
                             f"that, are the {layers} layers of the model, without decoder_last_pipeline_num_layers")
        if layers > each * plugin.pp_degree:
            options.update(schedule="interleaved", stages_per_rank=layers // (each * plugin.pp_degree))
        options["split"] = _split([each] * (layers // each))
    if last is not None:
        others, rest = divmod(layers - last, plugin.pp_degree - 1)
        if rest or others < 1 or last < 1:
            raise ValueError(f"decoder_last_pipeline_num_layers={last}: expected a number that leaves a multiple of {plugin.pp_degree - 1} of the {layers} "
                             "layers to the other stages")
        options["split"] = _split([*[others] * (plugin.pp_degree - 1), last])
    return options


def _split(layers):
    """The cut into stages of so many layers; the head is a part of the last one."""
    return ",".join(map(str, [*layers[:-1], layers[-1] + 1]))


def experts_of(plugin):
    """How experts of a model are shared out, by fields of accel_expert_parallel_options_t."""
    return {"tensor_parallel_experts": 1} if plugin is not None and plugin.expert_tensor_parallel_size > 1 else {}
