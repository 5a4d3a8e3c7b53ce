# SPDX-License-Identifier: Apache-2.0
"""Base of all optimizers: groups with settings, states, steps; and optimizers whose update is Python's."""

import weakref
from collections.abc import Mapping, MutableMapping
from typing import Any

from .. import capi
from ..engine.objects import made_again
from ..generated import errors, methods
from ..modules.module import Module, Parameters
from ..state.options import fill, number_of
from ..tensors.creation import zeros


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
        if name == "initial_lr":  # where schedules begin, which torch keeps beside the settings
            state = capi.accel_optimizer_state_dict(self._optimizer.handle)
            state["param_groups"][self._place][name] = float(value)
            capi.accel_optimizer_load_state_dict(self._optimizer.handle, state)
            return
        for part, number in zip(("beta1", "beta2"), value) if name == "betas" else ((name, value),):
            capi.accel_optimizer_set_setting(self._optimizer.handle, self._place, part, float(number))

    def __delitem__(self, name):
        raise TypeError("settings of a group cannot be deleted")

    def _group(self):
        """The group in the form of the state dict."""
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
    """The state of each parameter that an optimizer has updated: `optimizer.state[parameter]["exp_avg"]`."""

    def __init__(self, optimizer):
        kept = capi.accel_optimizer_state_dict(optimizer.handle)["state"]
        parameters = [parameter for group in optimizer._params for parameter in group]
        self._entries = {parameter.data_ptr(): (parameter, kept[number]) for number, parameter in enumerate(parameters)
                         if number in kept}

    def __getitem__(self, parameter):
        entry = self._entries.get(parameter.data_ptr())
        if entry is None:
            raise KeyError("the optimizer keeps nothing of this tensor: it has not updated it")
        return entry[1]

    def __iter__(self):
        return (parameter for parameter, _ in self._entries.values())

    def __len__(self):
        return len(self._entries)


class Optimizer(methods.Optimizer):
    """An optimizer. `params` is a module, its parameters() or named_parameters(), tensors, or dicts of groups {"params": ..., "lr": ...}.
    `foreach` and `fused` are taken and have no effect, for there is one way to compute an update here.

    A subclass with `update()` computes its own: it changes `parameter` in place, and keeps what `state_names` lists.
    """

    state_names: "tuple[str, ...]" = ()
    _make: Any = None
    _options: Any = None

    def __init__(self, params, lr=None, *, capturable=False, differentiable=False, foreach=None, fused=None, **settings):
        for name, wanted in (("capturable", capturable), ("differentiable", differentiable)):
            if wanted:
                raise NotImplementedError(f"{name}=True: {type(self).__name__} cannot be captured into a graph, nor differentiated through")
        groups = _groups(params)
        module = groups if isinstance(groups, Module) else None
        handle = module.handle if module is not None else None
        self.defaults = {name: value for name, value in {"lr": lr, **settings}.items() if value is not None}
        if type(self)._make is not None:
            self.handle = type(self)._make(handle, self._fill())
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

    def _fill(self):
        """The options of the engine, with numbers of any library's kind."""
        options, settings = self._options(), dict(self.defaults)
        if "betas" in settings:
            settings["beta1"], settings["beta2"] = settings.pop("betas")
        return fill(options, {name: value if isinstance(value, str) else int(value) if isinstance(getattr(options, name), int) else float(value)
                                       for name, value in settings.items()})

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
        """A mapping from parameters to their states."""
        return States(self)

    @property
    def param_groups(self):
        return [ParamGroup(self, place) for place in range(capi.accel_optimizer_num_groups(self.handle))]

    def step(self, closure=None):
        """One update of all parameters that have a gradient; False when nothing was updated. With a closure, which zeroes the gradients,
        runs forward and backward and returns the loss, the result is what it returned, and None when the closure was not called."""
        if closure is None:
            return capi.accel_optimizer_step(self.handle) == capi.ACCEL_OK
        answers = []

        def loss():
            answers.append(closure())
            return answers[0] if isinstance(answers[0], capi.accel_tensor) else zeros(1)  # the engine hands it back, and does not compute with it

        capi.accel_optimizer_step_closure(self.handle, loss)
        return answers[0] if answers else None

    def __reduce__(self):
        groups = [{"params": parameters} for parameters in self._params]
        return made_again, (type(self), (groups,), self.defaults, self.state_dict())

    def set_update_precision(self, precision, group=None):
        """Sets the precision in which updates of half-precision parameters are computed: "as_stored", "master_weights" or
        "stochastic_rounding"."""
        for place in range(len(self.param_groups)) if group is None else (group,):
            capi.accel_optimizer_set_update_precision(self.handle, place, number_of("update_precision", precision))

    def __repr__(self):
        groups = "".join(f"\n  {place}: {group!r}" for place, group in enumerate(self.param_groups))
        return f"{type(self).__name__} ({groups}\n)"


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


class Prepared(Optimizer):
    """An optimizer that steps only when gradients are complete; `optimizer` is the one inside."""

    def __reduce__(self):
        """A copy is that of the optimizer inside: it belongs to no job."""
        return self.optimizer.__reduce__()

    def __repr__(self):
        return f"Prepared({self.optimizer!r})"
