"""Optimizers, with the names, arguments and defaults of torch.optim; settings that are not given are the engine's defaults."""

import weakref
from collections.abc import Mapping, MutableMapping
from typing import Any

from . import capi, errors, handlers, lr_scheduler
from .module import Module, Parameters

_PRECISIONS = {"as_stored": capi.ACCEL_UPDATE_PRECISION_AS_STORED, "master_weights": capi.ACCEL_UPDATE_PRECISION_MASTER_WEIGHTS,
               "stochastic_rounding": capi.ACCEL_UPDATE_PRECISION_STOCHASTIC_ROUNDING}


class ParamGroup(MutableMapping):
    """The settings of a group: `optimizer.param_groups[0]["lr"] = 0.1`."""

    def __init__(self, optimizer, place):
        self._optimizer, self._place = optimizer, place

    def __getitem__(self, name):
        if name == "params":
            return list(self._optimizer._params[self._place])
        if name == "betas":
            return self["beta1"], self["beta2"]
        try:
            value = capi.accel_optimizer_setting(self._optimizer.handle, self._place, name)
        except errors.NotFoundError:
            return self._group()[name]  # what torch keeps beside the settings
        return None if value == capi.ACCEL_UNSET_DOUBLE else value

    def __setitem__(self, name, value):
        for part, number in zip(("beta1", "beta2"), value) if name == "betas" else ((name, value),):
            capi.accel_optimizer_set_setting(self._optimizer.handle, self._place, part, float(number))

    def __delitem__(self, name):
        raise TypeError("settings of a group cannot be deleted")

    def _group(self):
        """As the state dict has it."""
        group = capi.accel_optimizer_state_dict(self._optimizer.handle)["param_groups"][self._place]
        return {name: value for name, value in group.items() if name != "params"}

    def __iter__(self):
        yield "params"
        yield from self._group()

    def __len__(self):
        return 1 + len(self._group())

    def __repr__(self):
        return repr(self._group())


class States(Mapping):
    """What an optimizer keeps of each parameter that it has updated: `optimizer.state[parameter]["exp_avg"]`."""

    def __init__(self, optimizer):
        kept = capi.accel_optimizer_state_dict(optimizer.handle)["state"]
        parameters = [parameter for group in optimizer._params for parameter in group]
        self._entries = {parameter.data_ptr(): (parameter, kept[str(number)]) for number, parameter in enumerate(parameters)
                         if str(number) in kept}

    def __getitem__(self, parameter):
        entry = self._entries.get(parameter.data_ptr())
        if entry is None:
            raise KeyError("the optimizer keeps nothing of this tensor: it has not updated it")
        return entry[1]

    def __iter__(self):
        return (parameter for parameter, _ in self._entries.values())

    def __len__(self):
        return len(self._entries)


class Optimizer:
    """An optimizer. `params` is a module, its parameters() or named_parameters(), tensors, or dicts of groups {"params": ..., "lr": ...}.
    Further arguments are those of torch.optim in their order; `foreach` and `fused` are taken and have no effect, for there is one way
    to compute an update here.

    A subclass with `update()` computes its own: it changes `parameter` in place, and keeps what `state_names` lists.
    """

    state_names: "tuple[str, ...]" = ()
    _make: Any = None
    _options: Any = None
    _order: "tuple[str, ...]" = ()  # of positional arguments behind lr

    def __init__(self, params, lr=None, *positional, **settings):
        groups = _groups(params)
        module = groups if isinstance(groups, Module) else None
        handle = module.handle if module is not None else None
        settings = {"lr": lr, **self._by_name(positional, settings)}
        if "betas" in settings:
            settings["beta1"], settings["beta2"] = settings.pop("betas")
        self.defaults = {name: value for name, value in settings.items() if value is not None}
        if type(self)._make is not None:
            self.handle = type(self)._make(handle, self._fill(self.defaults))
        else:
            unknown = self.defaults.keys() - {"lr", "weight_decay"}
            if unknown:
                raise TypeError(f"{type(self).__name__} has no setting {unknown.pop()!r}")
            owner = weakref.ref(self)  # the engine holds the callback: no circle
            self.handle = capi.accel_optimizer_create(handle, list(self.state_names), float(self.defaults.get("lr", 1e-3)),
                                                      float(self.defaults.get("weight_decay", 0)), lambda *given: owner().update(*given))
        self._params = [] if module is None else [[parameter for parameter in module.parameters() if parameter.requires_grad]]
        for group in () if module is not None else groups:
            self.add_param_group(group)

    def _by_name(self, positional, settings):
        """The settings, with the positional ones under their names and without those that do not change what is computed."""
        if len(positional) > len(self._order):
            raise TypeError(f"{type(self).__name__} has {len(self._order)} positional settings behind lr: {', '.join(self._order)}")
        named = dict(zip(self._order, positional))
        for name in named.keys() & settings.keys():
            raise TypeError(f"{type(self).__name__} was given {name} twice")
        for name in ("capturable", "differentiable"):
            if settings.get(name):
                raise NotImplementedError(f"{name}=True: {type(self).__name__} cannot be captured into a graph, nor differentiated through")
        without = ("foreach", "fused", "capturable", "differentiable")
        return {**named, **{name: value for name, value in settings.items() if name not in without}}

    def _fill(self, settings):
        options = self._options()
        for name in settings:
            if not hasattr(options, name):
                known = ", ".join(entry for entry in dir(options) if not entry.startswith("_") and entry not in _SWIG)
                raise TypeError(f"{type(self).__name__} has no setting {name!r}; it has {known}")
        integers = {name: int(value) if isinstance(getattr(options, name), int) else float(value) for name, value in settings.items()}
        return handlers.fill(options, integers)

    @classmethod
    def of_handle(cls, handle, like):
        """The prepared optimizer of another one."""
        made = Prepared.__new__(Prepared)
        made.handle, made.optimizer, made.defaults, made._params = handle, like, like.defaults, like._params
        return made

    def update(self, parameter, gradient, states, step, lr, weight_decay):
        raise NotImplementedError(f"{type(self).__name__} has no update()")

    def add_param_group(self, group):
        """{"params": tensors, "lr": ...}: a group with settings of its own."""
        settings = {name: value for name, value in group.items() if name != "params"}
        unset = capi.ACCEL_UNSET_DOUBLE
        tensors = _tensors(group["params"])
        capi.accel_optimizer_add_group(self.handle, tensors, float(settings.pop("lr", unset)), float(settings.pop("weight_decay", unset)))
        self._params.append(tensors)
        for name, value in settings.items():
            self.param_groups[-1][name] = value

    @property
    def state(self):
        """A mapping from parameters to what is kept of them."""
        return States(self)

    @property
    def param_groups(self):
        return [ParamGroup(self, place) for place in range(capi.accel_optimizer_num_groups(self.handle))]

    def step(self, closure=None):
        """One update of all parameters that have a gradient; False when nothing was updated. With a closure, which zeroes the gradients,
        runs forward and backward and returns the loss, the result is that loss, and None when the closure was not called."""
        if closure is None:
            return capi.accel_optimizer_step(self.handle) == capi.ACCEL_OK
        return capi.accel_optimizer_step_closure(self.handle, closure)[1]

    def train(self):
        """Parameters of a schedule-free optimizer become those that are trained; others have nothing to switch."""
        capi.accel_optimizer_train(self.handle, 1)

    def eval(self):
        """Parameters of a schedule-free optimizer become their average, which is what is to be evaluated and saved."""
        capi.accel_optimizer_train(self.handle, 0)

    def zero_grad(self, set_to_none=True):
        """Drops the gradients, or fills them with zeros."""
        capi.accel_optimizer_zero_grad(self.handle, set_to_none)

    @property
    def step_was_skipped(self):
        return capi.accel_optimizer_step_was_skipped(self.handle) == 1

    def state_dict(self):
        return capi.accel_optimizer_state_dict(self.handle)

    def load_state_dict(self, state_dict):
        capi.accel_optimizer_load_state_dict(self.handle, state_dict)

    def __reduce__(self):
        groups = [{"params": parameters} for parameters in self._params]
        return _rebuild, (type(self), groups, self.defaults, self.state_dict())

    def state_bytes(self):
        """What the optimizer keeps of its parameters, in bytes."""
        return capi.accel_optimizer_state_bytes(self.handle)

    def set_update_precision(self, precision, group=None):
        """What updates of half-precision parameters are computed in: "as_stored", "master_weights" or "stochastic_rounding"."""
        for place in range(len(self.param_groups)) if group is None else (group,):
            capi.accel_optimizer_set_update_precision(self.handle, place, _PRECISIONS[precision])

    def __repr__(self):
        groups = "".join(f"\n  {place}: {group!r}" for place, group in enumerate(self.param_groups))
        return f"{type(self).__name__} ({groups}\n)"


_SWIG = {"acquire", "append", "disown", "next", "own", "this", "thisown", "struct_size", "reserved"}


def _groups(params):
    """A module, or dicts of groups."""
    if isinstance(params, Parameters):
        return params.module
    if isinstance(params, Module):
        return params
    if isinstance(params, Mapping):
        return [params]
    if isinstance(params, capi.accel_tensor) or not hasattr(params, "__iter__"):
        raise TypeError("params: expected a module, its parameters(), a list of tensors, or dicts with \"params\"")
    params = list(params)
    if not params:
        raise ValueError("params: there are no parameters")
    return params if isinstance(params[0], Mapping) else [{"params": params}]


def _tensors(params):
    """The tensors of a group, which may come with their names."""
    if isinstance(params, capi.accel_tensor):
        return [params]
    return [entry[1] if isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str) else entry for entry in params]


def _rebuild(kind, groups, defaults, state):
    made = kind(groups, **defaults)
    made.load_state_dict(state)
    return made


class Prepared(Optimizer):
    """An optimizer that steps only when gradients are complete; `optimizer` is the one inside."""

    def __reduce__(self):
        """A copy is that of the optimizer inside: it belongs to no job."""
        return self.optimizer.__reduce__()

    def __repr__(self):
        return f"Prepared({self.optimizer!r})"


class AdamW(Optimizer):
    """AdamW(params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, amsgrad=False, maximize=False)"""

    _make, _options = staticmethod(capi.accel_optimizer_adamw), capi.accel_adam_options_t
    _order = ("betas", "eps", "weight_decay", "amsgrad")


class Adam(Optimizer):
    """Adam(params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, amsgrad=False, maximize=False)"""

    _make, _options = staticmethod(capi.accel_optimizer_adam), capi.accel_adam_options_t
    _order = ("betas", "eps", "weight_decay", "amsgrad")


class AdamW8bit(Optimizer):
    """AdamW whose moments take a byte each, with the arguments of AdamW."""

    _make, _options = staticmethod(capi.accel_optimizer_adamw_8bit), capi.accel_adam_options_t
    _order = ("betas", "eps", "weight_decay", "amsgrad")


class SGD(Optimizer):
    """SGD(params, lr=1e-3, momentum=0, dampening=0, weight_decay=0, nesterov=False, maximize=False)"""

    _make, _options = staticmethod(capi.accel_optimizer_sgd), capi.accel_sgd_options_t
    _order = ("momentum", "dampening", "weight_decay", "nesterov")


class Adagrad(Optimizer):
    """Adagrad(params, lr=1e-2, lr_decay=0, weight_decay=0, initial_accumulator_value=0, eps=1e-10, maximize=False)"""

    _make, _options = staticmethod(capi.accel_optimizer_adagrad), capi.accel_adagrad_options_t
    _order = ("lr_decay", "weight_decay", "initial_accumulator_value", "eps")


class RMSprop(Optimizer):
    """RMSprop(params, lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0, momentum=0, centered=False, maximize=False)"""

    _make, _options = staticmethod(capi.accel_optimizer_rmsprop), capi.accel_rmsprop_options_t
    _order = ("alpha", "eps", "weight_decay", "momentum", "centered")


class Adamax(Optimizer):
    """Adamax(params, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, maximize=False)"""

    _make, _options = staticmethod(capi.accel_optimizer_adamax), capi.accel_adamax_options_t
    _order = ("betas", "eps", "weight_decay")


class NAdam(Optimizer):
    """NAdam(params, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, momentum_decay=4e-3, decoupled_weight_decay=False)"""

    _make, _options = staticmethod(capi.accel_optimizer_nadam), capi.accel_nadam_options_t
    _order = ("betas", "eps", "weight_decay", "momentum_decay", "decoupled_weight_decay")


class RAdam(Optimizer):
    """RAdam(params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, decoupled_weight_decay=False)"""

    _make, _options = staticmethod(capi.accel_optimizer_radam), capi.accel_radam_options_t
    _order = ("betas", "eps", "weight_decay", "decoupled_weight_decay")


class Lion(Optimizer):
    """Lion(params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0, maximize=False)"""

    _make, _options = staticmethod(capi.accel_optimizer_lion), capi.accel_lion_options_t
    _order = ("betas", "weight_decay")


class LAMB(Optimizer):
    """LAMB(params, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01, maximize=False)"""

    _make, _options = staticmethod(capi.accel_optimizer_lamb), capi.accel_lamb_options_t
    _order = ("betas", "eps", "weight_decay")


class Adafactor(Optimizer):
    """Adafactor(params, lr=1e-2, beta2_decay=-0.8, eps1=..., eps2=1e-3, d=1, weight_decay=0, maximize=False)"""

    _make, _options = staticmethod(capi.accel_optimizer_adafactor), capi.accel_adafactor_options_t


class Muon(Optimizer):
    """Muon(params, lr=1e-3, weight_decay=0.1, momentum=0.95, nesterov=True, ns_steps=5); only matrices."""

    _make, _options = staticmethod(capi.accel_optimizer_muon), capi.accel_muon_options_t
    _order = ("weight_decay", "momentum", "nesterov")


class LOMO(Optimizer):
    """LOMO(params, lr=1e-3, clip_grad_norm=None, clip_grad_value=None); Accelerator.lomo_backward() updates."""

    _make, _options = staticmethod(capi.accel_optimizer_lomo), capi.accel_lomo_options_t


class AdaLomo(Optimizer):
    """AdaLomo(params, lr=1e-3, weight_decay=0, decay_rate=-0.8, eps1=1e-30, eps2=1e-3, clip_threshold=1, clip_grad_norm=None,
    clip_grad_value=None); Accelerator.lomo_backward() updates."""

    _make, _options = staticmethod(capi.accel_optimizer_adalomo), capi.accel_adalomo_options_t


class SGDScheduleFree(Optimizer):
    """SGDScheduleFree(params, lr=1.0, momentum=0.9, weight_decay=0, warmup_steps=0, r=0, weight_lr_power=2, maximize=False). Call eval()
    before an evaluation or a save, and train() before the next step."""

    _make, _options = staticmethod(capi.accel_optimizer_schedule_free_sgd), capi.accel_schedule_free_sgd_options_t
    _order = ("momentum", "weight_decay", "warmup_steps", "r", "weight_lr_power")


class AdamWScheduleFree(Optimizer):
    """AdamWScheduleFree(params, lr=2.5e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, warmup_steps=0, r=0, weight_lr_power=2,
    maximize=False). Call eval() before an evaluation or a save, and train() before the next step."""

    _make, _options = staticmethod(capi.accel_optimizer_schedule_free_adamw), capi.accel_schedule_free_adamw_options_t
    _order = ("betas", "eps", "weight_decay", "warmup_steps", "r", "weight_lr_power")


__all__ = ["LAMB", "LOMO", "SGD", "AdaLomo", "Adafactor", "Adagrad", "Adam", "AdamW", "AdamW8bit", "AdamWScheduleFree", "Adamax", "Lion",
           "Muon", "NAdam", "Optimizer", "ParamGroup", "Prepared", "RAdam", "RMSprop", "SGDScheduleFree", "lr_scheduler"]
