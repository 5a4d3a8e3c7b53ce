# SPDX-License-Identifier: Apache-2.0
"""Which plugin says how an Accelerator's models are sharded: one that is given, else one of the environment."""

import os

from .. import capi
from ..engine.torch_types import is_torch_model
from ..state.environment import parse_choice_from_env, parse_flag_from_env
from ..state.handlers import check_types
from ..state.job import is_initialized, shard_by, sharded_by
from .deepspeed import DeepSpeedPlugin, selected_of
from .fsdp import FullyShardedDataParallelPlugin


def choose(fsdp, one, several, mixed_precision):
    """From fsdp_plugin, deepspeed_plugin and deepspeed_plugins: the two kinds of plugins, and the precision, which DeepSpeed's configuration may
    decide."""
    if one is not None and several is not None:
        raise ValueError("You cannot pass in both `deepspeed_plugins` and `deepspeed_plugin`.")
    deepspeed = several if one is None else one
    check_types(fsdp_plugin=(fsdp, FullyShardedDataParallelPlugin))
    if isinstance(deepspeed, dict) and not deepspeed:
        raise ValueError("deepspeed_plugin={}: expected at least one plugin")
    for plugin in deepspeed.values() if isinstance(deepspeed, dict) else [deepspeed]:
        check_types(deepspeed_plugin=(plugin, DeepSpeedPlugin))
    known_fsdp, known_deepspeed = sharded_by() if is_initialized() else (None, None)
    if deepspeed is not None and known_deepspeed is not None:
        raise NotImplementedError("You cannot pass in a `deepspeed_plugin` when creating a second `Accelerator`: expected all plugins of the "
                                  "program in the first")
    if known_deepspeed is not None:
        return (None, known_deepspeed), mixed_precision
    if deepspeed is None and parse_flag_from_env("ACCELERATE_USE_DEEPSPEED"):
        deepspeed = DeepSpeedPlugin()
    if deepspeed is not None:
        if fsdp is not None:
            raise ValueError("fsdp_plugin and deepspeed_plugin both say how models are sharded: expected one of them")
        return (None, deepspeed), _precision_of(deepspeed, mixed_precision)
    if fsdp is None:
        fsdp = known_fsdp or (FullyShardedDataParallelPlugin() if parse_flag_from_env("ACCELERATE_USE_FSDP") else None)
    return (fsdp, None), mixed_precision


def _precision_of(deepspeed, mixed_precision):
    """The precision of the first of the plugins, which is the one that is selected."""
    plugins = list(deepspeed.values()) if isinstance(deepspeed, dict) else [deepspeed]
    given = mixed_precision if mixed_precision is not None else parse_choice_from_env("ACCELERATE_MIXED_PRECISION", "no")
    for plugin in plugins:
        plugin.set_mixed_precision(str(given).lower())
        plugin._unselect()
    plugins[0].select(_from_accelerator_state=True)
    return str(given).lower() if str(given).lower() == "fp8" else plugins[0].mixed_precision


def follow(plugins, mixed_precision):
    """From now on models are sharded by these plugins."""
    fsdp, _ = plugins
    if fsdp is not None:
        if mixed_precision != "no":
            fsdp.set_mixed_precision(mixed_precision)
        if fsdp.cpu_ram_efficient_loading:
            os.environ["ACCELERATE_USE_FSDP"] = "true"  # transformers reads it before it loads weights on rank 0 only
    shard_by(*plugins)


def options_of(model, options):
    """Adds the settings of sharding to the options of a model. The result lives as long as they are used. Where nothing is sharded parameters may
    be unused all the same, as with FSDP and DeepSpeed."""
    fsdp, deepspeed = sharded_by()
    if deepspeed is not None:
        plugin = selected_of(deepspeed)
        options.deepspeed = added = plugin.to_engine()
        shards = plugin.zero_stage != 0
    elif fsdp is not None:
        if is_torch_model(model):
            fsdp.set_auto_wrap_policy(model)
        options.fsdp = added = fsdp.to_engine(model)
        shards = added.sharding_strategy != capi.ACCEL_SHARDING_STRATEGY_NO_SHARD
    else:
        return None
    if shards:
        return added
    ddp = capi.accel_ddp_options_t() if options.ddp is None else options.ddp
    if ddp.static_graph != 1:  # which learns what is unused
        ddp.find_unused_parameters = 1
    options.ddp = ddp
    return added, ddp
