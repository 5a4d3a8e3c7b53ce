# SPDX-License-Identifier: Apache-2.0
"""Arguments of an Accelerator: which kind of object it is, and what stands for it in the engine."""

from .. import capi
from ..data import loader as data
from ..engine.torch_types import is_torch_loader, is_torch_model, is_torch_optimizer, is_torch_scheduler, is_torch_tensor
from ..engine.values import to_engine
from ..generated.optimizers import LOMO, AdaLomo
from ..modules.argument_types import check_model, wrong_kind
from ..modules.module import Module, Parameters
from ..tensors.tensor import backward_options
from . import lr_scheduler
from .optimizer import Optimizer, Prepared

_UNTOUCHED = (type(None), bool, int, float, complex, str, bytes, list, tuple, dict, set)


def kind_of(thing):
    """Which of the prepare_...() functions an object is for; None for one that stays as it is."""
    if isinstance(thing, Module) or is_torch_model(thing):
        return "model"
    if is_optimizer(thing):
        return "optimizer"
    if isinstance(thing, data.DataLoader) or is_torch_loader(thing):
        return "data_loader"
    if isinstance(thing, lr_scheduler.LRScheduler) or is_torch_scheduler(thing) or is_prepared(thing):
        return "scheduler"
    if isinstance(thing, _UNTOUCHED) or _is_tensor(thing):
        return None
    raise TypeError(f"prepare() got a {type(thing).__module__}.{type(thing).__qualname__}; expected models, optimizers, loaders and schedulers "
                    "of accel or torch")


def placements_of(given, objects, plugin):
    """For each object that prepare() gets, whether it is put on the device; None: as the Accelerator says. Under the settings of a `plugin`, of
    DeepSpeed or Megatron-LM, programs do not say so."""
    if given is not None and plugin is not None:
        raise ValueError("You can't customize device placements with DeepSpeed or Megatron-LM: expected prepare() without device_placement")
    if given is not None and len(given) != len(objects):
        raise ValueError(f"device_placement has {len(given)} entries for {len(objects)} objects")
    return [None] * len(objects) if given is None else given


def is_optimizer(thing):
    """Whether it is an optimizer, of accel or of torch."""
    return isinstance(thing, Optimizer) or is_torch_optimizer(thing)


def is_lomo(optimizer):
    """Whether a prepared optimizer, of the engine or of the package lomo_optim, updates in the backward."""
    inner = getattr(optimizer, "optimizer", optimizer)
    return isinstance(inner, (LOMO, AdaLomo)) or type(inner).__module__.split(".")[0] == "lomo_optim"


def remembered(known, prepared):
    """A prepared object, which is in the list of those that an Accelerator knows once."""
    if all(one is not prepared for one in known):
        known.append(prepared)
    return prepared


def is_prepared(thing):
    """Whether an optimizer or scheduler is prepared."""
    return isinstance(thing, (Prepared, lr_scheduler.Prepared)) or getattr(thing, "_is_accelerate_prepared", False)


def pytorch_model():
    """The module that knows models of torch."""
    from . import torch_model as model  # imports torch

    return model


def handle_of(model, function):
    """The engine's module of a model that a function was given; one of torch is prepared."""
    if not is_torch_model(check_model(function, model)):
        return model.handle
    forward = pytorch_model().forward_of(model)
    if forward is None:
        raise ValueError(f"{function}(): the {type(model).__name__} is not prepared; expected what prepare() returned")
    return forward.handle


def _is_tensor(value):
    return isinstance(value, capi.accel_tensor) or is_torch_tensor(value)


def loss_in_engine(value):
    """The loss in the engine."""
    if not _is_tensor(value):
        raise TypeError(f"the loss is a {type(value).__name__}; expected a tensor with gradient history")
    return to_engine(value)


def backward_settings(given):
    """The arguments of a backward, with tensors of either kind."""
    tensors = {name: to_engine(given[name]) for name in ("gradient", "inputs") if given.get(name) is not None}
    return backward_options(**{**given, **tensors})


def lomo_of_package(optimizers, learning_rate, is_alone):
    """The optimizers of the package lomo_optim, which run a backward themselves."""
    found = [one.optimizer for one in optimizers if is_lomo(one) and is_torch_optimizer(one.optimizer)]
    if found and learning_rate is None:
        raise ValueError("A learning rate must be passed in order to call backward pass with LOMO optimizers.")
    if found and not is_alone:
        raise NotImplementedError(f"{type(found[0]).__name__} of lomo_optim asks torch's process group for the mean over the ranks, which prepare() does "
                                  "not make; expected one process, or accel.optim.LOMO with a model of accel")
    return found


def gradients_of(parameters, function):
    """The parameters that a function was given, when they are a list, and the module whose parameters they are: for a list of tensors one that
    holds just them."""
    if isinstance(parameters, Parameters):
        return [], parameters.module
    if isinstance(parameters, Module):
        return [], parameters
    if _is_tensor(parameters):
        parameters = [parameters]
    parts = list(parameters) if hasattr(parameters, "__iter__") else [parameters]
    for part in parts:
        if not _is_tensor(part):
            raise wrong_kind(function, part, "a parameter", "model.parameters(), or a list of tensors")
    holder = Module.of_handle(capi.accel_module_create("Parameters"))
    for place, part in enumerate(parts):
        capi.accel_module_add_parameter(holder.handle, str(place), to_engine(part), int(part.requires_grad))
    return parts, holder


def stepping_engine(accelerator):
    """The engine that updates in the place of the program, under Megatron-LM's settings, or under DeepSpeed's with an optimizer; None: the
    program does."""
    wrapped = accelerator.deepspeed_engine_wrapped
    return wrapped if accelerator.whole_step_engine is None and wrapped is not None and wrapped.engine.optimizer is not None else accelerator.whole_step_engine


def coordinate(axis, what, error=RuntimeError):
    """A property: where this rank is along an axis of the mesh."""
    def rank(self) -> int:
        if self.parallelism_config is None:
            raise error(f"{what} parallelism is not configured: give Accelerator(parallelism_config=ParallelismConfig(...))")
        return self.torch_device_mesh.get_local_rank(axis)

    return property(rank, doc=f"This rank's place in {what} parallelism.")


def choice(setting, name, names):
    """The number that a setting's name has in C."""
    if name not in (None, *names):
        raise ValueError(f"{setting}={name!r}; expected one of {', '.join(names)}")
    return None if name is None else getattr(capi, f"ACCEL_{setting}_{name}".upper())
