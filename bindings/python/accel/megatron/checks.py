"""Settings of Megatron-LM that a model contradicts, and those that have no effect here, each of which is told once."""

from ..state.job import data_parallel_size
from ..tracking.logging import get_logger
from .arguments import DEFAULTS
from .dummies import MegatronLMDummyScheduler

_logger = get_logger(__name__)
# The names that the configurations of transformers have for a rate of dropout.
_DROPOUTS = {"attention_dropout": ("attn_pdrop", "attention_dropout", "attention_probs_dropout_prob"),
             "hidden_dropout": ("resid_pdrop", "hidden_dropout", "hidden_dropout_prob", "dropout_rate")}
_LENGTHS = ("n_positions", "max_position_embeddings")
_OF_PIPELINE = ("num_layers_per_virtual_pipeline_stage", "decoder_last_pipeline_num_layers", "pipeline_model_parallel_split_rank")
_OF_SCHEDULE = ("train_iters", "train_samples", "lr_decay_style", "lr_decay_iters", "lr_decay_samples", "lr_warmup_iters", "lr_warmup_samples",
                "lr_warmup_fraction", "min_lr", "weight_decay_incr_style", "start_weight_decay", "end_weight_decay")


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


def told(plugin, given):
    """(what, why) of the settings without effect, for the objects that prepare() was given."""
    said = plugin.said
    if "attention_backend" in said:
        yield "attention_backend", "the engine chooses how attention is computed by shapes and device"
    if "attention_softmax_in_fp32" in said and not plugin.attention_softmax_in_fp32:
        yield "attention_softmax_in_fp32=False", "the softmax of attention is always computed in float32"
    if plugin.use_precision_aware_optimizer:
        yield "use_precision_aware_optimizer", "states of the optimizer have the type that it gives them; accel.optim.AdamW8bit has some of 8 bits"
    if plugin.overlap_cpu_optimizer_d2h_h2d and not plugin.optimizer_cpu_offload:
        yield "overlap_cpu_optimizer_d2h_h2d", "it needs optimizer_cpu_offload, where copies always overlap"
    if plugin.pp_degree == 1:
        for name in _OF_PIPELINE:
            if getattr(plugin, name) is not None:
                yield name, "pp_degree is 1"
    if plugin.sequence_parallelism and plugin.tp_degree == 1:
        yield "sequence_parallelism", "tp_degree is 1"
    if not plugin.megatron_dataset_flag:
        for name in {"eval_iters", "eval_interval"} & said:
            yield name, "the program's loop says when a model is evaluated, and on how many batches"
        if plugin.consumed_samples is not None:
            yield "consumed_samples", "loaders of a program go on where load_state() or skip_first_batches() puts them"
    if plugin.set_all_logging_options and plugin.tensorboard_dir is None:
        yield "set_all_logging_options", "there is no tensorboard_dir"
    if (plugin.use_distributed_optimizer or plugin.use_custom_fsdp) and data_parallel_size() == 1:
        yield "use_custom_fsdp" if plugin.use_custom_fsdp else "use_distributed_optimizer", "there is one data rank"
    if not any(isinstance(thing, MegatronLMDummyScheduler) for thing in given):
        for name in _OF_SCHEDULE:
            if name in said:
                yield name, "it is of the schedule of a MegatronLMDummyScheduler, which prepare() was not given"
    known = {*DEFAULTS, *plugin.megatron_lm_default_args} - set(plugin.other_megatron_args or ())
    for name in plugin.other_megatron_args or ():
        if name not in known and name not in DEFAULTS:
            yield f"other_megatron_args[{name!r}]", "it is an argument of Megatron-LM's own code"


def tell(plugin, given):
    """Each once, on the main process."""
    already = vars(plugin).setdefault("already_told", set())
    for name, why in told(plugin, given):
        if name not in already:
            already.add(name)
            _logger.warning("MegatronLMPlugin: %s has no effect: %s", name, why)
