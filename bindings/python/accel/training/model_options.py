# SPDX-License-Identifier: Apache-2.0
"""The engine's options for a model that is prepared: those of a call, before those of the accelerator's plugins and handlers."""

from .. import capi
from ..compat.modeling import is_split
from ..engine.torch_types import is_torch_model
from ..megatron import layout as megatron_layout
from ..parallel import sharding_choice, split_sequences
from ..parallel.ddp import DistributedDataParallelKwargs
from ..parallel.parallelism_config import layer_options
from ..state.options import fill
from .compilation import refuse_for_own_modules


def build(accelerator, model, device_placement, evaluation_mode, split_by_program, given):
    """(accel_prepare_model_options_t, what it points to and does not keep, by name). `given` has by the names of its pointers the fields of a call,
    or None; split_by_program may be None."""
    config, is_of_torch, megatron = accelerator.parallelism_config, is_torch_model(model), accelerator.state.megatron_lm_plugin
    if not is_of_torch:
        refuse_for_own_modules(accelerator.state.dynamo_plugin, model)
    options = capi.accel_prepare_model_options_t(device_placement=int(device_placement), evaluation_mode=int(evaluation_mode))
    if split_by_program is not None or is_split(model):
        options.split_by_program = int(split_by_program is None or split_by_program)
    ddp = power = None
    handler = accelerator._handlers.get(DistributedDataParallelKwargs)
    if handler is not None:
        ddp, power = handler.to_engine()
        options.ddp = ddp
    options.tensor_parallel = layers = layer_options(config, given["tensor_parallel"])
    options.expert_parallel = experts = fill(capi.accel_expert_parallel_options_t(), given["expert_parallel"] or megatron_layout.experts_of(megatron))
    options.context_parallel = sequences = split_sequences.options(config, given["context_parallel"])
    staging = dict(given["pipeline"] or megatron_layout.stages_of(megatron, model))
    of_torch = {name: staging.pop(name, None) if is_of_torch else None for name in ("param_init_fn", "sample_inputs", "checkpoint")}
    options.pipeline = stages = capi.accel_pipeline_options_t(**staging)
    sharding = sharding_choice.options_of(model, options)
    for chosen in (options, layers, experts, sequences, stages) if is_of_torch else (sequences,):  # part of the engine's work is done in Python
        capi.accel_options_resolve(type(chosen).__name__, chosen)
    return options, {"ddp": (ddp, power), "tensor_parallel": layers, "expert_parallel": experts, "context_parallel": sequences, "pipeline": stages,
                     "sharding": sharding, "of_torch": of_torch}
