# SPDX-License-Identifier: Apache-2.0
"""prepare() under DeepSpeed's settings: fills the configuration from the objects, and makes the optimizer and the scheduler that it
names."""

import logging
import math

from ..engine.torch_types import is_torch_loader, is_torch_model, is_torch_optimizer, is_torch_scheduler, torch_module
from .deepspeed import DummyOptim, DummyScheduler

_logger = logging.getLogger(__name__)
_OF_HIDDEN_SIZE = {"reduce_bucket_size": lambda size: size * size, "stage3_prefetch_bucket_size": lambda size: int(0.9 * size * size),
                   "stage3_param_persistence_threshold": lambda size: 10 * size}


def objects(accelerator, plugin, given):
    """The objects to prepare: those that were given, with real ones in the place of DummyOptim and DummyScheduler."""
    batch_size = _batch_size(accelerator, plugin, given)
    plugin.fill_match("gradient_accumulation_steps", must_match=False, gradient_accumulation_steps=accelerator.gradient_accumulation_steps)
    steps = plugin.get_value("gradient_accumulation_steps")
    if steps != accelerator.gradient_accumulation_steps:
        _logger.warning("gradient_accumulation_steps is %s, and %s in DeepSpeed's configuration, which counts", accelerator.gradient_accumulation_steps, steps)
        accelerator.gradient_accumulation_steps = steps
    values = {"gradient_clipping": 1.0, "zero_optimization.stage3_gather_16bit_weights_on_model_save": False}
    if batch_size is not None:
        values["train_micro_batch_size_per_gpu"] = batch_size
        values["train_batch_size"] = batch_size * steps * accelerator.num_processes
    model = next((thing for thing in given if is_torch_model(thing) or _is_own(thing, "module")), None)
    optimizer = next((thing for thing in given if isinstance(thing, DummyOptim) or is_torch_optimizer(thing) or _is_own(thing, "optim")), None)
    scheduler = next((thing for thing in given if isinstance(thing, DummyScheduler) or is_torch_scheduler(thing) or _is_own(thing, "lr_scheduler")), None)
    _check_pair(plugin.deepspeed_config, optimizer, scheduler)
    if model is None:
        return list(given)
    plugin.set_moe_leaf_modules(model)
    values.update(_sizes(plugin, model))
    if isinstance(optimizer, DummyOptim):
        values.update({"optimizer.params.lr": optimizer.lr, "optimizer.params.weight_decay": optimizer.weight_decay})
    if isinstance(scheduler, DummyScheduler) and scheduler.lr_scheduler_callable is None:
        values.update(_of_schedule(accelerator, scheduler))
    plugin.deepspeed_config_process(must_match=False, **values)
    accelerator.deepspeed_config = plugin.deepspeed_config
    made = {}
    if isinstance(optimizer, DummyOptim):
        made[id(optimizer)] = _make_optimizer(plugin, optimizer, model, accelerator.num_processes > 1)
    if isinstance(scheduler, DummyScheduler):
        made[id(scheduler)] = _make_scheduler(plugin.deepspeed_config, scheduler, made.get(id(optimizer), optimizer))
    return [made.get(id(thing), thing) for thing in given]


def add_engine(accelerator, given, prepared):
    """The engine of the first model of torch: `accelerator.deepspeed_engine_wrapped`, whose backward() also updates. In `prepared` the program's
    optimizer, and the scheduler of a DummyScheduler, become ones whose step() does nothing."""
    model = next(filter(is_torch_model, prepared), None)
    if model is None:
        return
    if accelerator.deepspeed_engine_wrapped is not None:
        _logger.warning("accelerator.deepspeed_engine_wrapped stays that of the model that was prepared first: make another Accelerator for another one")
        return
    from ..training.torch_scheduler import AcceleratedScheduler
    from . import deepspeed_wrappers as deepspeed  # imports torch

    engine = deepspeed.PreparedEngine(accelerator, model)
    for place, thing in enumerate(prepared):
        if engine.optimizer is None and is_torch_optimizer(thing):
            engine.optimizer, prepared[place] = thing, deepspeed.DeepSpeedOptimizerWrapper(thing)
        elif isinstance(thing, AcceleratedScheduler) and isinstance(given[place], DummyScheduler):
            thing.counts_updates = True
            engine.lr_scheduler, prepared[place] = thing, deepspeed.DeepSpeedSchedulerWrapper(thing, engine.optimizer)
    accelerator.deepspeed_engine_wrapped = deepspeed.DeepSpeedEngineWrapper(engine)


def _is_own(thing, module):
    from ..modules.module import Module
    from ..training import lr_scheduler
    from ..training.optimizer import Optimizer

    return isinstance(thing, {"module": Module, "optim": Optimizer, "lr_scheduler": lr_scheduler.LRScheduler}[module])


def _batch_size(accelerator, plugin, given):
    """The batch size of one rank: the configuration's, else the smallest or largest of the loaders."""
    from ..data import loader as data

    if not plugin.is_auto("train_micro_batch_size_per_gpu"):
        return plugin.get_value("train_micro_batch_size_per_gpu")
    loaders = [thing for thing in given if is_torch_loader(thing) or isinstance(thing, data.DataLoader)]
    instead = ("set an integer value in `train_micro_batch_size_per_gpu` in the deepspeed config file or assign integer value to "
               "`AcceleratorState().deepspeed_plugin.deepspeed_config['train_micro_batch_size_per_gpu']`.")
    if not loaders:
        raise ValueError("When using DeepSpeed, `accelerate.prepare()` requires you to pass at least one of training or evaluation dataloaders "
                         f"with `batch_size` attribute returning an integer value or alternatively {instead}")
    sizes = [loader.batch_size for loader in loaders]
    if None in sizes:
        raise ValueError("At least one of the dataloaders passed to `accelerate.prepare()` has `None` as batch size. "
                         f"Please {instead}")
    if accelerator.split_batches:
        sizes = [size // accelerator.num_processes for size in sizes]
    return min(sizes) if plugin.is_train_batch_min else max(sizes)


def _check_pair(config, optimizer, scheduler):
    if optimizer is not None and ("optimizer" in config) != isinstance(optimizer, DummyOptim):
        raise ValueError("You cannot specify an optimizer in the config file and in the code at the same time. Please remove the optimizer from "
                         "the config file or create `accelerate.utils.DummyOptim` in the code." if "optimizer" in config else
                         "You cannot create a `DummyOptim` without specifying an optimizer in the config file.")
    if scheduler is not None and "scheduler" in config and not isinstance(scheduler, DummyScheduler):
        raise ValueError("You cannot specify a scheduler in the config file and in the code at the same time. Please remove the scheduler from "
                         "the config file or create `accelerate.utils.DummyScheduler` in the code.")
    if isinstance(scheduler, DummyScheduler) and "scheduler" not in config and scheduler.lr_scheduler_callable is None:
        raise ValueError("Either specify a scheduler in the config file or pass in the `lr_scheduler_callable` parameter when using "
                         "`accelerate.utils.DummyScheduler`.")
    if isinstance(optimizer, DummyOptim) and scheduler is not None and not isinstance(scheduler, DummyScheduler):
        raise ValueError("You can only specify `accelerate.utils.DummyScheduler` in the code when using `accelerate.utils.DummyOptim`.")


def _sizes(plugin, model):
    """Values that follow from the size of the hidden states."""
    auto = [key for key in _OF_HIDDEN_SIZE if plugin.is_auto(f"zero_optimization.{key}")]
    if not auto:
        return {}
    config = getattr(model, "config", None)
    instead = f", which {', '.join(auto)} of DeepSpeed's configuration follow from: they are `auto`; expected numbers there"
    if config is None:
        raise ValueError(f"Can't find `model.config` entry{instead}")
    size = getattr(config, "hidden_size", None) or max(getattr(config, "hidden_sizes", None) or [0])
    if not size:
        raise ValueError(f"Can find neither `model.config.hidden_size` nor `model.config.hidden_sizes`{instead}")
    return {f"zero_optimization.{key}": of_size(size) for key, of_size in _OF_HIDDEN_SIZE.items()}


def _of_schedule(accelerator, scheduler):
    optimizer = scheduler.optimizer
    values = {"scheduler.params.warmup_min_lr": 0,
              "scheduler.params.warmup_max_lr": optimizer.lr if isinstance(optimizer, DummyOptim) else optimizer.defaults["lr"],
              "scheduler.params.warmup_num_steps": max(1, scheduler.warmup_num_steps)}
    if scheduler.total_num_steps is not None:
        ranks = 1 if accelerator.split_batches else accelerator.num_processes
        values["scheduler.params.total_num_steps"] = math.ceil(scheduler.total_num_steps / ranks)
    return values


def _make_optimizer(plugin, dummy, model, has_ranks):
    """Makes an optimizer of the type that the configuration names: DeepSpeed's own names in any case, else the name of a class of torch.optim."""
    torch, section = torch_module(), plugin.deepspeed_config["optimizer"]
    kind = section.get("type", "")
    if torch is None:
        raise NotImplementedError("DummyOptim makes optimizers of torch: expected a program of torch, or an optimizer of accel in its place")
    from .deepspeed_optimizers import make  # imports torch

    if kind.lower() == "muon":
        for name, parameter in model.named_parameters():
            if not hasattr(parameter, "use_muon"):  # as DeepSpeed sets it
                parameter.use_muon = parameter.dim() >= 2 and "embed" not in name and "lm_head" not in name
            if parameter.use_muon and parameter.dim() != 2:
                raise ValueError(f"Muon updates matrices, and {name} has {parameter.dim()} dimensions; set its use_muon to False, and AdamW updates it")
    return make(kind, dummy.params, section.get("params", {}), has_ranks and plugin.get_value("zero_optimization.stage", 0) > 0)


def _make_scheduler(config, dummy, optimizer):
    if dummy.lr_scheduler_callable is not None:
        return dummy.lr_scheduler_callable(optimizer)
    from .deepspeed_schedules import ConfiguredSchedule  # imports torch

    section = config["scheduler"]
    return ConfiguredSchedule(optimizer, section.get("type", ""), section.get("params", {}))
