# SPDX-License-Identifier: Apache-2.0
"""The training loop: prepares models, optimizers, loaders and schedulers, and does what several ranks must do together."""

import contextlib
import dataclasses
import logging
import os
from operator import attrgetter, index
from typing import Any

from .. import capi
from ..big_models.weights import in_floating_type, tree_of
from ..compat.modeling import extract_model_from_parallel
from ..data import loader as data
from ..engine.scopes import noting, scope
from ..engine.torch_types import is_torch_loader, is_torch_model, is_torch_optimizer, is_torch_scheduler, is_torch_tensor, torch_module
from ..generated import methods
from ..generated.settings import AutocastKwargs, GradientAccumulationPlugin, GradScalerKwargs
from ..megatron import layout as megatron_layout
from ..megatron import prepare as megatron_prepare
from ..megatron.plugin import MegatronLMPlugin
from ..modules.argument_types import check_model, wrong_kind
from ..modules.module import Module, PreparedModule
from ..parallel import collectives, deepspeed_prepare, sharding_choice, split_sequences, ulysses_loader
from ..parallel.ddp import DistributedDataParallelKwargs
from ..parallel.parallelism_config import ParallelismConfig, chosen_parallelism
from ..parallel.parallelism_handlers import TorchTensorParallelPlugin
from ..state.handlers import DataLoaderConfiguration, InitProcessGroupKwargs, ProjectConfiguration, check_backend, check_types, whole_number
from ..state.job import keep
from ..state.machine import check_os_kernel
from ..state.options import fill
from ..state.process import AcceleratorState, GradientState, PartialState, current_of_accelerator
from ..state.random import rng_types_of_engine
from ..tensors.creation import tensor
from ..tensors.tensor import Tensor
from ..tracking.observed import Observed
from ..tracking.profiling import ProfileKwargs
from . import dispatched_models, fp8_layers, lr_scheduler, model_options, optim
from .accelerator_arguments import (backward_settings, choice, coordinate, gradients_of, handle_of, is_lomo, is_optimizer,
                                    is_prepared, kind_of, lomo_of_package, loss_in_engine, placements_of, pytorch_model, remembered, stepping_engine)
from .accelerator_checkpoints import AcceleratorCheckpoints
from .accelerator_precision import RECIPE_HANDLERS, AcceleratorPrecision, handler_property
from .captured_step import CapturedStep
from .compilation import chosen_plugin
from .pipeline_step import pipeline_step

_HANDLERS = (AutocastKwargs, DistributedDataParallelKwargs, GradScalerKwargs, InitProcessGroupKwargs, ProfileKwargs, *RECIPE_HANDLERS)


class Accelerator(AcceleratorCheckpoints, methods.Accelerator, Observed, AcceleratorPrecision):
    """The entry point of a training. Unset arguments come from the launcher, then the defaults.

    fsdp_plugin and deepspeed_plugin, one or several by name, say how models are sharded, and parallelism_config (formerly
    torch_tp_plugin) how they are split. megatron_lm_plugin says both.

    Beyond Accelerate:

    - true_divisor: divides a short last group by its length
    - keep_output_dtype: outputs stay in half precision
    - scheduler_steps_per_update: schedules count updates
    - num_threads, cpu_affinity: the threads of the CPU
    - cpu_kernels: "auto", "default", "onednn"
    - cpu_memory: "auto", "default", "cached" (cpu_memory_kept bytes)
    - torch_device: "cpu", "cuda:1"
    - device_plugins: libraries, joined by colons
    - fused_optimizers: False leaves updates to torch
    - verify_replicas_every: updates between two checks
    """

    def __init__(self, device_placement: bool = True, split_batches: "bool | None" = None, mixed_precision: "str | None" = None,
                 gradient_accumulation_steps: int = 1, cpu: bool = False, dataloader_config: "DataLoaderConfiguration | None" = None,
                 deepspeed_plugin: Any = None, fsdp_plugin: Any = None, torch_tp_plugin: "TorchTensorParallelPlugin | None" = None,
                 megatron_lm_plugin: "MegatronLMPlugin | None" = None,
                 rng_types: "list | None" = None, log_with: Any = None, project_dir: "str | None" = None,
                 project_config: "ProjectConfiguration | None" = None,
                 gradient_accumulation_plugin: "GradientAccumulationPlugin | None" = None, step_scheduler_with_optimizer: bool = True,
                 kwargs_handlers: "list | None" = None, dynamo_backend: Any = None, dynamo_plugin: Any = None, deepspeed_plugins: Any = None,
                 parallelism_config: "ParallelismConfig | None" = None, *, true_divisor: "bool | None" = None,
                 keep_output_dtype: "bool | None" = None, scheduler_steps_per_update: "bool | None" = None, num_threads: "int | None" = None,
                 cpu_kernels: "str | None" = None, cpu_memory: "str | None" = None, cpu_memory_kept: "int | None" = None,
                 torch_device: "str | None" = None, device_plugins: "str | None" = None, cpu_affinity: "bool | None" = None,
                 fused_optimizers: bool = True, verify_replicas_every: "int | None" = None):
        megatron_lm_plugin, fsdp_plugin, parallelism_config = megatron_layout.choose(
            megatron_lm_plugin, fsdp_plugin, parallelism_config, deepspeed_plugin or deepspeed_plugins, torch_tp_plugin)
        sharded_by, mixed_precision = sharding_choice.choose(fsdp_plugin, deepspeed_plugin, deepspeed_plugins, mixed_precision)
        dynamo_plugin = chosen_plugin(dynamo_backend, dynamo_plugin)
        parallelism_config = chosen_parallelism(parallelism_config, torch_tp_plugin)
        check_types(project_config=(project_config, ProjectConfiguration), dataloader_config=(dataloader_config, DataLoaderConfiguration),
                    split_batches=(split_batches, bool))
        self.project_configuration = project_config or ProjectConfiguration(project_dir=project_dir)
        if project_dir is not None and self.project_dir is None:
            self.project_configuration.set_directories(project_dir)
        self.dataloader_config = dataloader_config or DataLoaderConfiguration()
        if split_batches is not None:
            self.dataloader_config = dataclasses.replace(self.dataloader_config, split_batches=split_batches)
        self._handlers = self._check_handlers(kwargs_handlers or [])
        accumulation = self._accumulation(gradient_accumulation_steps, gradient_accumulation_plugin)
        group = self._handlers.get(InitProcessGroupKwargs)
        check_os_kernel()
        self.state = AcceleratorState(
            mixed_precision, cpu, _from_accelerator=True, device_placement=None if device_placement else False,
            split_batches=self.dataloader_config.split_batches or None, rng_types=rng_types_of_engine(rng_types),
            step_scheduler_with_optimizer=None if step_scheduler_with_optimizer else False, true_divisor=true_divisor,
            keep_output_dtype=keep_output_dtype, num_threads=num_threads, cpu_kernels=choice("cpu_kernels", cpu_kernels, ("auto", "default", "onednn")),
            cpu_memory=choice("cpu_memory", cpu_memory, ("auto", "default", "cached")), cpu_memory_kept=cpu_memory_kept,
            torch_device=torch_device, device_plugins=device_plugins, cpu_affinity=cpu_affinity, verify_replicas_every=verify_replicas_every,
            dynamo_plugin=dynamo_plugin, parallelism_config=parallelism_config, megatron_lm_plugin=megatron_lm_plugin,
            scheduler_steps=capi.ACCEL_SCHEDULER_STEPS_PER_UPDATE if scheduler_steps_per_update else None,
            **({} if group is None else group.to_engine()), **accumulation)
        keep(self)
        sharding_choice.follow(sharded_by, self.state.mixed_precision)
        self.parallelism_config = parallelism_config
        if parallelism_config is not None:
            parallelism_config._validate_accelerator(self)
        self.rng_types = ["generator"] if rng_types is None else rng_types
        check_backend(None if group is None else group.backend, self.state)
        self.gradient_state = GradientState()
        self.device_placement, self.step_scheduler_with_optimizer = device_placement, step_scheduler_with_optimizer
        self._fused_optimizers = fused_optimizers
        self._set_precision(mixed_precision)
        self._models: list = []
        self._optimizers: list = []
        self._schedulers: list = []
        self._dataloaders: list = []
        self._custom_objects: list = []
        self._load_kwargs: dict = {}  # of the load that is under way
        self.deepspeed_engine_wrapped: Any = None  # of the first model that is prepared under DeepSpeed's settings
        self.whole_step_engine: Any = None  # of the model under Megatron-LM's
        self._choose_trackers(log_with)

    def _current(self):
        """The engine's state of this Accelerator, or of the group that the program is in."""
        return current_of_accelerator(self)

    @staticmethod
    def _check_handlers(handlers):
        known = {}
        for handler in handlers:
            if not isinstance(handler, _HANDLERS):
                raise TypeError(f"kwargs_handlers has a {type(handler).__name__}; expected "
                                f"{', '.join(kind.__name__ for kind in _HANDLERS)}")
            if type(handler) in known:
                raise ValueError(f"kwargs_handlers has two {type(handler).__name__}")
            known[type(handler)] = handler
        return known

    @staticmethod
    def _accumulation(steps, plugin):
        if plugin is None:
            plugin = GradientAccumulationPlugin(num_steps=steps, adjust_scheduler=None, sync_with_dataloader=None, sync_each_batch=None)
        elif steps != 1:
            raise ValueError("give gradient_accumulation_steps or gradient_accumulation_plugin, not both")
        elif not isinstance(plugin, GradientAccumulationPlugin):
            raise TypeError(f"gradient_accumulation_plugin is a {type(plugin).__name__}")
        num_steps = whole_number("gradient_accumulation_steps", plugin.num_steps)
        return {"gradient_accumulation_steps": None if num_steps == 1 else num_steps,
                "adjust_scheduler": plugin.adjust_scheduler, "sync_with_dataloader": plugin.sync_with_dataloader,
                "sync_each_batch": plugin.sync_each_batch or None}

    # The state

    @property
    def multi_device(self) -> bool:
        return self.use_distributed and self.distributed_type.startswith("MULTI_") and self.distributed_type != "MULTI_CPU"

    @property
    def sync_gradients(self) -> bool:
        return self.gradient_state.sync_gradients

    @sync_gradients.setter
    def sync_gradients(self, sync):
        capi.accel_set_sync_gradients(self._current(), int(sync))

    @property
    def gradient_accumulation_steps(self) -> int:
        return self.gradient_state.num_steps

    @gradient_accumulation_steps.setter
    def gradient_accumulation_steps(self, steps):
        capi.accel_set_gradient_accumulation(self._current(), capi.accel_gradient_accumulation_options_t(num_steps=index(steps)))

    @property
    def optimizer_step_was_skipped(self) -> bool:
        return any(optimizer.step_was_skipped for optimizer in self._optimizers)

    split_batches = property(attrgetter("dataloader_config.split_batches"))
    dispatch_batches = property(attrgetter("dataloader_config.dispatch_batches"))
    use_seedable_sampler = property(lambda self: bool(self.dataloader_config.use_seedable_sampler))
    use_stateful_dataloader = property(lambda self: bool(self.dataloader_config.use_stateful_dataloader))
    even_batches = property(attrgetter("dataloader_config.even_batches"),
                            lambda self, value: setattr(self.dataloader_config, "even_batches", value))
    non_blocking = property(attrgetter("dataloader_config.non_blocking"))
    project_dir = property(attrgetter("project_configuration.project_dir"))
    logging_dir = property(attrgetter("project_configuration.logging_dir"))
    save_iteration = property(attrgetter("project_configuration.iteration"))

    torch_device_mesh = property(attrgetter("state.device_mesh"), doc="The ranks by kind of parallelism; None without a parallelism_config.")
    tensor_parallel_rank = coordinate("tp", "tensor")
    pipeline_parallel_rank = coordinate("pp", "pipeline", NotImplementedError)
    context_parallel_rank = coordinate("cp", "context", NotImplementedError)
    data_parallel_rank = coordinate("dp_replicate", "data")
    data_parallel_shard_rank = coordinate("dp_shard", "shard-based data")

    is_composable_parallelism_enabled = property(attrgetter("is_fsdp2"))
    deepspeed_plugin = property(attrgetter("state.deepspeed_plugin"), doc="The plugin of DeepSpeed that is selected.")
    ddp_handler, init_handler, profile_handler = map(handler_property, (DistributedDataParallelKwargs, InitProcessGroupKwargs, ProfileKwargs))
    flag_tensor = None  # the engine keeps the flag of set_trigger()

    def describe_fp8(self, model) -> dict:
        """Which layers of a prepared model compute in 8 bits, why others do not, and how many numbers became the largest: accel_fp8_describe()."""
        return capi.accel_fp8_describe(handle_of(model, "describe_fp8"))

    @property
    def has_lomo_optimizer(self) -> bool:
        """Whether a prepared optimizer is one of LOMO, which updates in the backward."""
        return any(is_lomo(optimizer) for optimizer in self._optimizers)

    @property
    def step(self) -> int:
        """Micro-batches that accumulate() has counted since a loader ended. Setting it decides which one completes a step."""
        return capi.accel_accumulation_step(self._current())

    @step.setter
    def step(self, step):
        if step is None:
            raise TypeError("step=None: expected a whole number")
        capi.accel_set_accumulation_step(self._current(), whole_number("step", step, 0))

    should_save_model = property(attrgetter("is_local_main_process"))

    def __repr__(self):
        return f"Accelerator(\n{self.describe().rstrip()}\n)"

    # Preparing

    def prepare(self, *args: Any, device_placement: "list | None" = None) -> Any:
        """The objects ready for all ranks, in the same order: models, optimizers, loaders and schedulers, the package's own or torch's.
        Numbers, texts, None and containers stay as they are; any other object is an error."""
        given, megatron = args, self.state.megatron_lm_plugin
        device_placement = placements_of(device_placement, args, megatron or self.deepspeed_plugin)
        if megatron is not None:
            args = megatron_prepare.objects(self, megatron, args)
        elif self.deepspeed_plugin is not None:
            args = deepspeed_prepare.objects(self, self.deepspeed_plugin, args)
        result = list(args)
        kinds = [kind_of(thing) for thing in args]
        for kinds_now in (("model", "optimizer", "data_loader"), ("scheduler",)):  # schedulers follow their optimizers
            for place, kind in enumerate(kinds):
                if kind in kinds_now:
                    prepare = getattr(self, f"prepare_{kind}")
                    result[place] = prepare(args[place]) if kind == "scheduler" else prepare(args[place], device_placement[place])
        if megatron is not None:
            megatron_prepare.add_engine(self, megatron, result)
        elif self.deepspeed_plugin is not None:
            deepspeed_prepare.add_engine(self, given, result)
        return result[0] if len(result) == 1 else tuple(result)

    def prepare_model(self, model: Any, device_placement: "bool | None" = None, evaluation_mode: bool = False, *,
                      split_by_program: "bool | None" = None, tensor_parallel: "dict | None" = None,
                      context_parallel: "dict | None" = None, expert_parallel: "dict | None" = None, pipeline: "dict | None" = None) -> Any:
        """On the device, under the precision, and data-parallel when there are several ranks. With `evaluation_mode` it runs on its own
        rank only; device_placement=False leaves the model where it is. A model of torch stays one: the same with one rank,
        else a DistributedModel around it. split_by_program: the model's own forward follows the axes tp, cp and pp of the mesh;
        None: where torch or transformers has split its parameters. Else pp has stages of the model, tp a plan for its layers,
        cp maybe_context_parallel(): pipeline, tensor_parallel, context_parallel and expert_parallel have fields of
        accel_pipeline_options_t and so on, before those of parallelism_config's handlers; more are for torch. docs/parallelism.md"""
        if isinstance(model, PreparedModule) or is_torch_model(model) and pytorch_model().forward_of(model) is not None:
            return remembered(self._models, model)
        is_spread = dispatched_models.require_trainable(check_model("prepare_model", model), self.num_processes)
        is_placed = not is_spread and (self.device_placement if device_placement is None else device_placement)
        options, pointed_to = model_options.build(
            self, model, is_placed, evaluation_mode, split_by_program,
            {"tensor_parallel": tensor_parallel, "context_parallel": context_parallel, "expert_parallel": expert_parallel, "pipeline": pipeline})
        with fp8_layers.of_model(model):
            if is_torch_model(model):
                exchange = (self.ddp_handler or DistributedDataParallelKwargs()) if self.use_distributed and not evaluation_mode else None
                prepared = pytorch_model().prepare(model, self._current(), options, exchange, *pointed_to["of_torch"].values())
            else:
                prepared = PreparedModule(capi.accel_prepare_model(self._current(), model.handle, options), model)
                prepared.inputs_are_split = pointed_to["context_parallel"].inputs_are_split == 1
        del pointed_to
        if self.fp8_enabled:
            fp8_layers.mark(model, prepared, handle_of(prepared, "prepare_model"), self.fp8_backend)
        return remembered(self._models, prepared)

    def prepare_optimizer(self, optimizer, device_placement=None):
        """An optimizer that steps only when gradients are complete."""
        if is_prepared(optimizer):
            return remembered(self._optimizers, optimizer)
        if is_torch_optimizer(optimizer):
            from .torch_optimizer import AcceleratedOptimizer

            device_placement = self.device_placement if device_placement is None else device_placement
            prepared = AcceleratedOptimizer(optimizer, device_placement, self.scaler, state=self._current(), fused=self._fused_optimizers)
        elif not isinstance(optimizer, optim.Optimizer):
            raise wrong_kind("prepare_optimizer", optimizer, "an optimizer", "one of accel or torch")
        else:
            prepared = optim.Optimizer.of_handle(capi.accel_prepare_optimizer(self._current(), optimizer.handle), optimizer)
        return remembered(self._optimizers, prepared)

    def prepare_scheduler(self, scheduler):
        """A scheduler that steps with its optimizer."""
        if is_prepared(scheduler):
            return remembered(self._schedulers, scheduler)
        if is_torch_scheduler(scheduler):
            from .torch_scheduler import AcceleratedScheduler

            own = [optimizer for optimizer in self._optimizers if scheduler.optimizer in (optimizer, getattr(optimizer, "optimizer", None))]
            prepared = AcceleratedScheduler(scheduler, own or self._optimizers, self.step_scheduler_with_optimizer, self.split_batches,
                                            state=self._current())
        elif not isinstance(scheduler, lr_scheduler.LRScheduler):
            raise wrong_kind("prepare_scheduler", scheduler, "a scheduler", "one of accel or torch")
        else:
            prepared = lr_scheduler.Prepared(capi.accel_prepare_scheduler(self._current(), scheduler.handle), scheduler)
        return remembered(self._schedulers, prepared)

    def prepare_data_loader(self, data_loader, device_placement=None, slice_fn_for_dispatch=None):
        """A loader that hands each rank its own batches; one of torch stays one."""
        if isinstance(data_loader, data.Prepared) or getattr(data_loader, "_is_accelerate_prepared", False):
            return remembered(self._dataloaders, data_loader)
        if is_torch_loader(data_loader):
            return self._prepare_torch_loader(data_loader, device_placement, slice_fn_for_dispatch)
        if not isinstance(data_loader, data.DataLoader):
            raise wrong_kind("prepare_data_loader", data_loader, "a loader", "one of accel or torch")
        config = self.dataloader_config.to_engine()
        config.put_on_device = int(self.device_placement if device_placement is None else device_placement)
        prepared = data.prepare(data_loader, self._current(), config, slice_fn_for_dispatch)
        return remembered(self._dataloaders, prepared)

    def _prepare_torch_loader(self, data_loader, device_placement, slice_fn_for_dispatch):
        from ..checkpoint import loader_checkpoint  # imports torch
        from ..data.prepare_data_loader import prepare_data_loader

        config = self.dataloader_config.for_torch()
        prepared = prepare_data_loader(
            data_loader, torch_module().device(str(self.device)), split_batches=config.split_batches,
            put_on_device=self.device_placement if device_placement is None else device_placement, rng_types=self.rng_types,
            dispatch_batches=config.dispatch_batches, even_batches=config.even_batches, slice_fn_for_dispatch=slice_fn_for_dispatch,
            use_seedable_sampler=bool(config.use_seedable_sampler), data_seed=config.data_seed, non_blocking=config.non_blocking,
            use_stateful_dataloader=bool(config.use_stateful_dataloader), torch_device_mesh=self.torch_device_mesh)
        prepared._is_accelerate_prepared, prepared.keeps_position = True, config.use_stateful_dataloader is not False
        loader_checkpoint.register(self)
        return remembered(self._dataloaders, prepared)

    def unwrap_model(self, model, keep_fp32_wrapper=True, keep_torch_compile=True):
        """The model inside a prepared one; with keep_fp32_wrapper it still runs under the precision, on its own rank only."""
        if is_torch_model(check_model("unwrap_model", model)):
            return extract_model_from_parallel(model, keep_fp32_wrapper, keep_torch_compile)
        if not isinstance(model, PreparedModule):
            return model
        if not keep_fp32_wrapper:
            return model.module
        return PreparedModule(capi.accel_unwrap_model(self._current(), model.handle, None), model.module)

    # The loop

    def backward(self, loss: Any, **kwargs: Any) -> None:
        """Gradients of the loss, divided by gradient_accumulation_steps and averaged over the ranks. The arguments of
        Tensor.backward(): gradient, retain_graph, create_graph, inputs. With `learning_rate` prepared LOMO optimizers update: lomo_backward().
        Under DeepSpeed's settings it also updates the optimizer that was prepared with a model of torch, when gradients are complete."""
        if (engine := stepping_engine(self)) is not None:
            engine.backward(loss, sync_gradients=self.sync_gradients, **kwargs)
        else:
            self._backward(loss, **kwargs)

    def _backward(self, loss, **kwargs):
        if kwargs.get("learning_rate") is not None and any(map(is_lomo, self._optimizers)):
            self.lomo_backward(loss / self.gradient_accumulation_steps, kwargs["learning_rate"])
        else:
            capi.accel_backward(self._current(), loss_in_engine(loss), backward_settings(kwargs))

    def backward_sum(self, loss_sum, count, **kwargs):
        """Gradients of the mean over all items of a step, from the sum of this micro-batch and its number of items."""
        if self.whole_step_engine is not None:
            return
        capi.accel_backward_sum(self._current(), loss_in_engine(loss_sum), count, backward_settings(kwargs))
        if stepping_engine(self) is not None:
            self.deepspeed_engine_wrapped.engine.set_gradient_accumulation_boundary(self.sync_gradients)
            self.deepspeed_engine_wrapped.engine.step()

    def pipeline_step(self, model: Module, inputs: Any = None, targets: Any = None, loss: Any = "cross_entropy") -> float:
        """Forward and backward of a model in stages; the loss. `loss` is "cross_entropy", "cross_entropy_sum", a function of output
        and targets, or None: the model returns it. docs/parallelism.md"""
        return pipeline_step(self._current(), handle_of(model, "pipeline_step"), inputs, targets, loss, model)

    def capture(self, step: Any, **options: Any) -> CapturedStep:
        """The step as one that the device records; a decorator. docs/captured_steps.md"""
        return CapturedStep(self._current(), step, self._optimizers, **options)

    def lomo_backward(self, loss, learning_rate=None):
        """Backward that updates the parameters of the prepared LOMO optimizers."""
        of_package = lomo_of_package(self._optimizers, learning_rate, not self.use_distributed)
        for optimizer in of_package:
            optimizer.fused_backward(loss, learning_rate)
        if of_package:
            return
        capi.accel_lomo_backward(self._current(), loss_in_engine(loss), capi.ACCEL_UNSET_DOUBLE if learning_rate is None else learning_rate)

    def accumulate(self, *models: Module) -> scope:
        """One micro-batch of these models: gradients are exchanged, and optimizers step, when the group is complete."""
        return scope(capi.accel_accumulate_begin, self._current(), [handle_of(model, "accumulate") for model in models])

    def no_sync(self, model: Module) -> scope:
        """Gradients of this model are not exchanged inside."""
        return noting(model, "held", scope(capi.accel_no_sync_begin, self._current(), handle_of(model, "no_sync")))

    def trigger_sync_in_backward(self, model):
        """Gradients are exchanged by a backward inside, although the forward was made where they are not."""
        return noting(model, "triggered", scope(capi.accel_trigger_sync_in_backward_begin, self._current(), handle_of(model, "trigger_sync_in_backward")))

    def join_uneven_inputs(self, joinables, even_batches=None):
        """The ranks may have different numbers of batches inside. Optimizers are passed over."""
        models = [handle_of(one, "join_uneven_inputs") for one in joinables if not is_optimizer(one)]
        if any(map(is_torch_loader, self._dataloaders)) or any(map(is_torch_model, joinables)):
            from .uneven_inputs import join  # imports torch

            return join(self._current(), models, self._dataloaders, even_batches)
        even = capi.ACCEL_UNSET if even_batches is None else int(even_batches)
        return scope(capi.accel_join_uneven_inputs_begin, self._current(), models, even)

    def autocast(self, autocast_handler=None):
        """Operators inside run in the precision of the state."""
        return scope(capi.accel_autocast_begin, self._current(), None if autocast_handler is None else autocast_handler.to_engine())

    @contextlib.contextmanager
    def maybe_context_parallel(self, buffers: "list | None" = None, buffer_seq_dims: "list | None" = None, no_restore_buffers: "set | None" = None):
        """Inside, each of the buffers, such as tokens, shifted labels and positions, shows the positions of this rank of cp along its dimension of
        buffer_seq_dims, attention is of the whole sequence, and the mean of cross_entropy is over all ranks. Afterwards buffers are whole again, but for
        no_restore_buffers. A backward may come later, but for torch's checkpoint() in a model of torch's own. Without cp_size there is one warning."""
        if split_sequences.ranks_of(self._current()) == 1 or split_sequences.are_of_ulysses(self.parallelism_config):
            split_sequences.warn_without_effect()
            yield
        else:
            with split_sequences.opened(self._current(), buffers or (), buffer_seq_dims or (), no_restore_buffers or ()):
                yield

    def deepspeed_ulysses_dl_adapter(self, dl, model):
        """With sp_size: a loader of this rank's positions of the batches of `dl`, a prepared loader, for a prepared model, which attends to whole
        sequences. "labels" are taken out: the program has "shift_labels" for the loss. Else the loader as it is."""
        return ulysses_loader.adapt(dl, model, self._current(), self.parallelism_config)

    def unscale_gradients(self, optimizer=None):
        """Divides gradients by the loss scale, before the step."""
        for entry in [optimizer] if not isinstance(optimizer, (list, tuple)) else optimizer:
            if entry is not None and not is_prepared(entry):
                raise wrong_kind("unscale_gradients", entry, "a prepared optimizer", "what prepare() returned, or None for all")
            capi.accel_unscale_gradients(self._current(), None if entry is None else entry.handle)

    def clip_grad_norm_(self, parameters: Any, max_norm: float, norm_type: float = 2) -> "Tensor | None":
        """Scales gradients so that their joint norm is at most max_norm. The norm before. While gradients accumulate they stay as they are,
        and the result is None, of parameters of torch the norm so far. Where DeepSpeed's engine updates, it clips as its configuration says, and
        the result is the norm of its latest update."""
        if (engine := stepping_engine(self)) is not None:
            return engine.get_global_grad_norm()
        return self._clip_grad_norm(parameters, max_norm, norm_type)

    def _clip_grad_norm(self, parameters, max_norm, norm_type=2):
        parameters, module = gradients_of(parameters, "clip_grad_norm_")
        status, norm = capi.accel_clip_grad_norm(self._current(), module.handle, float(max_norm), float(norm_type))
        if status == capi.ACCEL_OK:
            is_of_torch = any(map(is_torch_tensor, parameters)) or not parameters and torch_module() is not None
            return torch_module().tensor(norm) if is_of_torch else tensor(norm)
        if any(map(is_torch_tensor, parameters)):
            return torch_module().nn.utils.get_total_norm([part.grad for part in parameters if part.grad is not None], norm_type)
        return None

    def clip_grad_value_(self, parameters: Any, clip_value: float) -> None:
        """Cuts each element of the gradients to [-clip_value, clip_value]."""
        if stepping_engine(self) is not None:
            raise NotImplementedError("clip_grad_value_(): under DeepSpeed's and Megatron-LM's settings the gradients are used already; expected "
                                      "gradient_clipping there")
        capi.accel_clip_grad_value(self._current(), gradients_of(parameters, "clip_grad_value_")[1].handle, float(clip_value))

    # The ranks together

    gather = staticmethod(collectives.gather)
    gather_for_metrics = staticmethod(collectives.gather_for_metrics)

    @staticmethod
    def reduce(tensor, reduction="sum", scale=1.0, async_op=False):
        """accel.utils.reduce() with the sum as the default, which is Accelerate's default here."""
        return collectives.reduce(tensor, reduction, scale, async_op)

    pad_across_processes = staticmethod(collectives.pad_across_processes)

    # Weights

    def save_model(self, model: Any, save_directory: Any, max_shard_size: "int | str" = "10GB", safe_serialization: bool = True) -> None:
        """Writes a model's weights on the main process: as `model.safetensors`, or with safe_serialization=False as `pytorch_model.bin`; or as
        several files with an index, where they are larger than `max_shard_size`."""
        self._write_model(capi.accel_save_model, model, save_directory, max_shard_size, safe_serialization)

    def _write_model(self, write, model, save_directory, max_shard_size, safe_serialization):
        if os.path.isfile(save_directory):
            logging.getLogger(__name__).error("save_model(): %s is a file; expected a folder", save_directory)
            return
        is_of_torch = is_torch_model(check_model("save_model", model))
        is_usable = not is_of_torch or pytorch_model().forward_of(model) is not None
        if self._type_of_whole_weights() is not None or dispatched_models.has_offloaded(model) or is_of_torch and pytorch_model().is_inside_sharded(model, self._models):
            whole = self.get_state_dict(model)
            if not whole:
                return
            handle = tree_of(whole)
        else:
            handle = handle_of(model, "save_model") if is_usable else pytorch_model().mirror(model)
        options = fill(capi.accel_save_model_options_t(), {"max_shard_size": str(max_shard_size), "safe_serialization": safe_serialization,
                                                           "save_on_each_node": self.project_configuration.save_on_each_node})
        write(self._current(), handle, os.fspath(save_directory), options)

    def save_model_folder(self, model: Any, source: Any, save_directory: Any, max_shard_size: "int | str" = "10GB", safe_serialization: bool = True) -> None:
        """Writes the weights as save_model() does, with copies of the configurations, the vocabulary and the templates of the folder `source`
        that the model was made from: transformers opens the result."""
        self._write_model(lambda state, handle, *rest: capi.accel_save_model_folder(state, handle, os.fspath(source), *rest), model, save_directory, max_shard_size, safe_serialization)

    def get_state_dict(self, model, unwrap=True):
        """The weights of a model; those of a sharded one on the main process, on the others an empty dict. Under ZeRO 3
        they are in 16 bits, as zero3_save_16bit_model of the plugin asks; without it this is a ValueError."""
        if not hasattr(model, "state_dict"):
            raise wrong_kind("get_state_dict", model, "a model", "one of accel or torch")
        kind = self._type_of_whole_weights()
        if dispatched_models.has_offloaded(model):
            whole = dispatched_models.state_dict_of_offloaded(self.unwrap_model(model) if unwrap else model)
        elif is_torch_model(model):
            whole = pytorch_model().sharded_state_dict(model, self._models, self._current())
        elif isinstance(model, Module):
            whole = capi.accel_get_state_dict(self._current(), model.handle)  # also of the one inside a prepared model
        else:
            whole = None
        if whole is None:
            is_wrapped = unwrap and is_torch_model(model)
            whole = (self.unwrap_model(model, keep_torch_compile=False) if is_wrapped else model).state_dict()  # its prepared forward stays
        return whole if kind is None else {name: in_floating_type(value, kind) for name, value in whole.items()}

    def _type_of_whole_weights(self):
        return None if self.deepspeed_plugin is None else self.deepspeed_plugin.type_of_whole_weights()

    def skip_first_batches(self, dataloader, num_batches=0):
        """A new loader whose first epoch leaves out its first batches."""
        if isinstance(dataloader, data.DataLoader):
            return data.skip_first_batches(dataloader, num_batches)
        from ..data.prepare_data_loader import skip_first_batches  # imports torch

        return skip_first_batches(dataloader, num_batches)

    def free_memory(self, *objects):
        """Lets go of all prepared objects; as many None as objects. Registered objects stay."""
        for held in (self._models, self._optimizers, self._schedulers, self._dataloaders):
            held.clear()
        self.deepspeed_engine_wrapped = self.whole_step_engine = None
        if PartialState.is_made():  # not after end_training()
            capi.accel_free_memory(self._current())
        return [None] * len(objects)

    clear = free_memory

    def verify_device_map(self, model: Any) -> bool:
        """Whether a model, or a part of it, is spread over several devices by a device map."""
        return dispatched_models.is_spread(check_model("verify_device_map", model))
