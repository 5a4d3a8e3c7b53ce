# SPDX-License-Identifier: Apache-2.0
"""Settings of Megatron-LM that a model contradicts, and those that have no effect here, each of which is reported once."""

from ..state.job import data_parallel_size
from ..tracking.logging import get_logger
from .arguments import DEFAULTS
from .dummies import MegatronLMDummyDataLoader, MegatronLMDummyScheduler

_logger = get_logger(__name__)
# The names that the configurations of transformers have for a rate of dropout.
_DROPOUTS = {"attention_dropout": ("attn_pdrop", "attention_dropout", "attention_probs_dropout_prob"),
             "hidden_dropout": ("resid_pdrop", "hidden_dropout", "hidden_dropout_prob", "dropout_rate")}
_LENGTHS = ("n_positions", "max_position_embeddings")
_OF_PIPELINE = ("num_layers_per_virtual_pipeline_stage", "decoder_last_pipeline_num_layers", "pipeline_model_parallel_split_rank")
_OF_SCHEDULE = ("train_iters", "train_samples", "lr_decay_style", "lr_decay_iters", "lr_decay_samples", "lr_warmup_iters", "lr_warmup_samples",
                "lr_warmup_fraction", "min_lr", "weight_decay_incr_style", "start_weight_decay", "end_weight_decay")
_NOT_LOGGED = ("log_num_zeros_in_grad", "log_throughput", "log_progress", "log_timers_to_tensorboard", "log_memory_to_tensorboard",
               "log_world_size_to_tensorboard")
_OF_GPT = ("eod_mask_loss", "return_logits", "reset_position_ids", "reset_attention_mask")


def check_model(plugin, model):
    """A ValueError for a model that is not what the settings say of it: the engine trains the model that it is given."""
    config = model.config
    for field, names in _DROPOUTS.items():
        found = next((name for name in names if getattr(config, name, None) is not None), None)
        if field in plugin.said and found is not None and getattr(config, found) != getattr(plugin, field):
            raise ValueError(f"{field}={getattr(plugin, field)}, and the model has {found}={getattr(config, found)}: expected the model to be made with the "
                             f"rate, or {field} to be left out")
    has_rotary = any(hasattr(config, name) for name in ("rope_theta", "rope_parameters", "rope_scaling", "rotary_pct"))
    if "use_rotary_position_embeddings" in plugin.said and plugin.use_rotary_position_embeddings != has_rotary:
        raise ValueError(f"use_rotary_position_embeddings={plugin.use_rotary_position_embeddings}, and {type(model).__name__} "
                         f"{'has' if has_rotary else 'has no'} rotary embeddings: expected another model, or the field to be left out")
    most = next((getattr(config, name) for name in _LENGTHS if getattr(config, name, None) is not None), None)
    for field in ("seq_length", "encoder_seq_length", "decoder_seq_length"):
        length = getattr(plugin, field)
        if field in plugin.said and length is not None and most is not None and length > most:
            raise ValueError(f"{field}={length}, and the model takes {most} positions: expected at most these")


def unused_settings(plugin, given):
    """(what, why) of the settings without effect, for the objects that prepare() was given."""
    yield from _of_layers(plugin, given)
    yield from _of_losses(plugin)
    yield from _of_data(plugin, given)
    yield from _of_updates(plugin, given)
    if plugin.set_all_logging_options and plugin.tensorboard_dir is None:
        yield "set_all_logging_options", "there is no tensorboard_dir"
    elif plugin.set_all_logging_options:
        for name in _NOT_LOGGED:
            yield f"{name} of set_all_logging_options", "it is not in the values of a step"
    for name in plugin.other_megatron_args or ():
        if name not in DEFAULTS:
            yield f"other_megatron_args[{name!r}]", "it is an argument of Megatron-LM's own code"


def _of_layers(plugin, given):
    """How a model is split and computed."""
    said = plugin.said
    if "attention_backend" in said:
        yield "attention_backend", "the engine chooses how attention is computed by shapes and device"
    if "attention_softmax_in_fp32" in said and not plugin.attention_softmax_in_fp32:
        yield "attention_softmax_in_fp32=False", "the softmax of attention is always computed in float32"
    for config in [thing.config for thing in given if hasattr(thing, "config")]:
        for field, names in _DROPOUTS.items():
            if field in said and getattr(plugin, field) > 0 and all(getattr(config, name, None) is None for name in names):
                yield field, "the configuration of the model has no such rate"
    is_full = "recompute_granularity" in said and plugin.recompute_granularity == "full"
    for name in ("recompute_method", "recompute_num_layers"):
        if name in said and not is_full:
            yield name, "it chooses layers of recompute_granularity='full', which is not given"
    if plugin.recompute_activations and is_full:
        yield "recompute_activations", "recompute_granularity='full' goes before it"
    for name in _OF_PIPELINE:
        if getattr(plugin, name) is not None and plugin.pp_degree == 1:
            yield name, "pp_degree is 1"
        elif getattr(plugin, name) is not None and name == _OF_PIPELINE[-1]:
            yield name, "models with an encoder and a decoder are not trained in stages"
    if plugin.sequence_parallelism and plugin.tp_degree == 1:
        yield "sequence_parallelism", "tp_degree is 1"
    if (plugin.use_distributed_optimizer or plugin.use_custom_fsdp) and data_parallel_size() == 1:
        yield "use_custom_fsdp" if plugin.use_custom_fsdp else "use_distributed_optimizer", "there is one data rank"


def _of_losses(plugin):
    """Settings that the losses of a step do not have."""
    args, is_own_step = plugin.megatron_lm_default_args, plugin.custom_train_step_class is None
    kind = args.get("model_type_name")
    for name in _OF_GPT:
        if is_own_step and kind in ("bert", "t5") and (getattr(plugin, name, False) or args.get(name)):
            yield name, f"steps of the type {kind!r} do not have it"
    if is_own_step and kind == "gpt" and plugin.eod_mask_loss and plugin.custom_get_batch_function is not None:
        yield "eod_mask_loss", "custom_get_batch_function says which tokens count"
    if is_own_step and "calculate_per_token_loss" in plugin.said and plugin.custom_loss_function is not None:
        yield "calculate_per_token_loss", "custom_loss_function says what the loss is a mean of"
    if is_own_step and plugin.custom_train_step_kwargs:
        yield "custom_train_step_kwargs", "there is no custom_train_step_class"


def _of_data(plugin, given):
    """Which rows a step gets."""
    said = plugin.said
    if not plugin.megatron_dataset_flag:
        for name in {"eval_iters", "eval_interval"} & said:
            yield name, "the program's loop says when a model is evaluated, and on how many batches"
        if plugin.consumed_samples is not None:
            yield "consumed_samples", "loaders of a program go on where load_state() or skip_first_batches() puts them"
        if plugin.custom_megatron_datasets_provider_function is not None:
            yield "custom_megatron_datasets_provider_function", "megatron_dataset_flag is not given"
    elif not plugin.is_train_batch_min:
        yield "is_train_batch_min", "micro_batch_size of a MegatronLMDummyDataLoader counts"
    for loader in given:
        if isinstance(loader, MegatronLMDummyDataLoader):
            yield from loader.without_effect()


def _of_updates(plugin, given):
    """The optimizer and its schedule."""
    said = plugin.said
    if plugin.use_precision_aware_optimizer:
        yield "use_precision_aware_optimizer", "states of the optimizer have the type that it gives them; accel.optim.AdamW8bit has some of 8 bits"
    if plugin.overlap_cpu_optimizer_d2h_h2d and not plugin.optimizer_cpu_offload:
        yield "overlap_cpu_optimizer_d2h_h2d", "it needs optimizer_cpu_offload, where copies always overlap"
    if "lr_mult" in said and plugin.scale_lr_cond is None:
        yield "lr_mult", "there is no scale_lr_cond, which says for which parameters"
    if not any(isinstance(thing, MegatronLMDummyScheduler) for thing in given):
        for name in _OF_SCHEDULE:
            if name in said:
                yield name, "it is of the schedule of a MegatronLMDummyScheduler, which prepare() was not given"
        return
    unit, other = ("iterations", "samples") if plugin.train_iters is not None else ("samples", "iters")
    for name in (f"lr_decay_{other}", f"lr_warmup_{other}"):
        if name in said and getattr(plugin, name):
            yield name, f"the schedule counts {unit}"


def warn_of_unused_settings(plugin, given):
    """Each once, on the main process."""
    warned = vars(plugin).setdefault("warned_of", set())
    for name, why in unused_settings(plugin, given):
        if name not in warned:
            warned.add(name)
            _logger.warning("MegatronLMPlugin: %s has no effect: %s", name, why)
