"""Stages of a model under pp_degree, in the words of the engine's pipelines."""

from .. import capi


def options(plugin, model):
    """The settings of a pipeline: schedule, micro_batches, split and stages_per_rank. Fields that are not said are left to the engine."""
    if plugin.pipeline_model_parallel_split_rank is not None:
        raise NotImplementedError(f"pipeline_model_parallel_split_rank={plugin.pipeline_model_parallel_split_rank}: a model is one chain of layers here; "
                                  "expected None")
    from .recompute import layers_of  # imports torch

    chosen = {"micro_batches": plugin.num_micro_batches}
    layers, stages = layers_of(model), plugin.pp_degree
    if plugin.num_layers_per_virtual_pipeline_stage is not None:
        size = plugin.num_layers_per_virtual_pipeline_stage * stages
        if size <= 0 or len(layers) % size != 0:
            raise ValueError(f"num_layers_per_virtual_pipeline_stage={plugin.num_layers_per_virtual_pipeline_stage} and pp_degree={stages} do not divide "
                             f"the {len(layers)} layers of the model: expected divisors")
        chosen.update(schedule="interleaved", stages_per_rank=len(layers) // size)
    if plugin.decoder_last_pipeline_num_layers is not None:
        chosen["split"] = _names_of_first_layers(plugin, model, layers)
    return chosen


def _names_of_first_layers(plugin, model, layers):
    """Of each stage but the first one."""
    stages, last = plugin.pp_degree, plugin.decoder_last_pipeline_num_layers
    rest = len(layers) - last
    if last < 1 or rest < stages - 1 or rest % (stages - 1) != 0:
        raise ValueError(f"decoder_last_pipeline_num_layers={last} leaves {rest} of {len(layers)} layers for {stages - 1} stages: expected a multiple of that")
    names = {id(module): name for name, module in model.named_modules()}
    begins = [stage * rest // (stages - 1) for stage in range(1, stages)]
    return ",".join(names[id(layers[begin])] for begin in begins)


def require(plugin):
    """Refuses stages where the engine has no pipelines."""
    if plugin.pp_degree > 1 and not hasattr(capi, "accel_pipeline_step"):
        raise NotImplementedError(f"pp_degree={plugin.pp_degree}: models are not trained in stages in libaccel yet; expected 1, and tp_degree or "
                                  "use_custom_fsdp for a model that does not fit one process")
    if plugin.pp_degree > 1:
        raise NotImplementedError(f"pp_degree={plugin.pp_degree}: models of torch are not trained in stages under Megatron-LM's settings yet; expected 1")
