# SPDX-License-Identifier: Apache-2.0
"""prepare() under Megatron-LM's settings: completes them from the objects, and makes the engine that does whole steps."""

import logging

from ..data import loader as data
from ..engine.torch_types import is_torch_loader, is_torch_model, is_torch_optimizer, is_torch_scheduler
from ..modules.module import Module
from ..state.job import data_parallel_size
from ..training.lr_scheduler import LRScheduler
from ..training.optimizer import Optimizer
from . import checks
from .arguments import get_args, initialize
from .dummies import MegatronLMDummyDataLoader, MegatronLMDummyScheduler

_logger = logging.getLogger(__name__)
_ONE_MODEL = "You can't use same `Accelerator()` instance with multiple models when using Megatron-LM"


def objects(accelerator, plugin, given):
    """The objects to prepare: those that were given, with batches of all micro-batches of a step, groups of parameters by the plugin's conditions, and a
    schedule in the place of a MegatronLMDummyScheduler."""
    for thing in given:
        if isinstance(thing, (Module, Optimizer, LRScheduler, data.DataLoader)):
            raise NotImplementedError(f"megatron_lm_plugin: prepare() got a {type(thing).__name__} of accel; expected objects of torch, or another plugin")
    models = [thing for thing in given if is_torch_model(thing) and not _is_prepared(thing)]
    if len(models) > 1 or models and accelerator.whole_step_engine is not None:
        raise AssertionError(_ONE_MODEL)
    optimizer = next((thing for thing in given if is_torch_optimizer(thing) and not _is_prepared(thing)), None)
    scheduler = next((thing for thing in given if is_torch_scheduler(thing) or isinstance(thing, MegatronLMDummyScheduler)), None)
    loaders = [thing for thing in given if is_torch_loader(thing)]
    if not any((models, optimizer, scheduler, loaders)) and not any(isinstance(thing, MegatronLMDummyDataLoader) for thing in given):
        return list(given)
    if models or not hasattr(plugin, "micro_batch_size"):
        plugin.set_training_args(_micro_batch_size(plugin, given, loaders), data_parallel_size())
    model = models[0] if models else None
    if model is not None:
        plugin.set_network_size_args(model, _a_batch(loaders))
        checks.check_model(plugin, model)
        _set_end_token(plugin, model)
    if optimizer is not None:
        plugin.set_optimizer_type(optimizer)
    if scheduler is not None:
        if not isinstance(scheduler, MegatronLMDummyScheduler):
            raise ValueError("You can't use a custom scheduler with Megatron-LM. Please use the `accelerate.utils.MegatronLMDummyScheduler` instead.")
        plugin.set_scheduler_args(scheduler)
    if accelerator.gradient_accumulation_steps != 1:
        _logger.warning("gradient_accumulation_steps=%s has no effect under Megatron-LM's settings: num_micro_batches=%s counts",
                        accelerator.gradient_accumulation_steps, plugin.num_micro_batches)
        accelerator.gradient_accumulation_steps = 1  # else accumulate() would hold gradients back
    checks.warn_of_unused_settings(plugin, given)
    initialize(accelerator)
    return _completed(accelerator, plugin, given, model, optimizer, scheduler)


def _completed(accelerator, plugin, given, model, optimizer, scheduler):
    from . import loaders, parameter_groups, plans, recompute  # some import torch

    made, args = {}, get_args()
    if model is not None:
        own = model_of_program(plugin)
        if own is not None:
            made[id(model)] = own
            if optimizer is not None:
                made[id(optimizer)] = parameter_groups.make_optimizer(args, own, plugin)
        plans.complete(made.get(id(model), model), plugin.tp_degree)
        recompute.apply(made.get(id(model), model), plugin)
    if optimizer is not None and id(optimizer) not in made and (model is not None or accelerator.whole_step_engine is not None):
        parameter_groups.split(optimizer, accelerator.whole_step_engine.module if model is None else model, plugin)
    if scheduler is not None:
        from .schedule import MegatronSchedule

        of = made.get(id(optimizer), optimizer)
        made[id(scheduler)] = MegatronSchedule(scheduler.optimizer if of is None else of, args)
    rows = plugin.micro_batch_size * plugin.num_micro_batches
    dummies = [thing for thing in given if isinstance(thing, MegatronLMDummyDataLoader)]
    if dummies:
        dummies[0].set_megatron_data_args()
        made.update(zip(map(id, dummies), dummies[0].build_train_valid_test_data_iterators(accelerator)))
    return [made[id(thing)] if id(thing) in made else loaders.with_step_rows(thing, rows) for thing in given]


def add_engine(accelerator, plugin, prepared):
    """In the place of the model the engine, and of the optimizer and the schedule ones whose step() does nothing."""
    place = next((number for number, thing in enumerate(prepared) if is_torch_model(thing)), None)
    optimizers = [number for number, thing in enumerate(prepared) if is_torch_optimizer(thing)]
    from .engine import MegatronEngine
    from ..training.torch_scheduler import AcceleratedScheduler
    from .wrappers import MegatronLMOptimizerWrapper, MegatronLMSchedulerWrapper

    schedules = [number for number, thing in enumerate(prepared) if isinstance(thing, AcceleratedScheduler)]
    optimizer = prepared[optimizers[0]] if optimizers else None
    schedule = prepared[schedules[0]] if schedules else None
    engine = accelerator.whole_step_engine
    if engine is None and place is not None:
        engine = accelerator.whole_step_engine = MegatronEngine(accelerator, prepared[place], optimizer, schedule)
    elif engine is not None:
        engine.optimizer, engine.scheduler = optimizer or engine.optimizer, schedule or engine.scheduler
    if place is not None:
        prepared[place] = engine
    for number in optimizers:
        prepared[number] = MegatronLMOptimizerWrapper(prepared[number])
    for number in schedules:
        prepared[number] = MegatronLMSchedulerWrapper(prepared[number], optimizer)
    if optimizer is not None:
        optimizer.is_saved, optimizer.is_loaded = not plugin.no_save_optim, not plugin.no_load_optim


def model_of_program(plugin):
    """The model that functions of the plugin make, None without one."""
    provider = plugin.custom_model_provider_function
    if plugin.custom_prepare_model_function is not None:
        if provider is None:
            raise ValueError("You must provide a `custom_model_provider_function` when using a `custom_prepare_model_function`.")
        made = plugin.custom_prepare_model_function(provider)
        return made[0] if isinstance(made, (list, tuple)) else made
    return None if provider is None else provider(pre_process=True, post_process=True)


def _is_prepared(thing):
    from ..training.prepared_forward import forward_of

    return getattr(thing, "_is_accelerate_prepared", False) or is_torch_model(thing) and forward_of(thing) is not None


def _micro_batch_size(plugin, given, loaders):
    from .loaders import rows_of

    if plugin.megatron_dataset_flag:
        dummy = next((thing for thing in given if isinstance(thing, MegatronLMDummyDataLoader)), None)
        if dummy is None or "micro_batch_size" not in dummy.dataset_args:
            raise ValueError("megatron_dataset_flag: expected MegatronLMDummyDataLoader(micro_batch_size=...) in prepare(), which says how many rows a "
                             "micro-batch has")
        return dummy.dataset_args["micro_batch_size"]
    sizes = [rows_of(loader) for loader in loaders]
    if not sizes or None in sizes:
        raise ValueError("You must specify a training or evaluation dataloader in `accelerate.prepare()` when using Megatron-LM: expected one with a "
                         "batch_size, the rows of a micro-batch")
    return min(sizes) if plugin.is_train_batch_min else max(sizes)


def _a_batch(loaders):
    """One row of a loader over a dataset that can be indexed, as it batches rows; None without one. It has the length of sequences."""
    for loader in loaders:
        if hasattr(loader.dataset, "__getitem__") and loader.collate_fn is not None and len(loader.dataset) > 0:
            batch = loader.collate_fn([loader.dataset[0]])
            if hasattr(batch, "keys") and "input_ids" in batch:
                return batch
    return None


def _set_end_token(plugin, model):
    token = getattr(model.config, "eos_token_id", None)
    plugin.megatron_lm_default_args.setdefault("eos_token_id", token[0] if isinstance(token, (list, tuple)) else token)
