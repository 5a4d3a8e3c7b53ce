# SPDX-License-Identifier: Apache-2.0
"""The update of a torch optimizer by LibTorch's fused kernels, over the optimizer's own parameters, settings and states.

The result is that of the optimizer with fused=True, bit for bit: it is the same kernel. torch's work around it in Python takes several times as
long as the update of a small model, and is left out.
"""

import functools
from operator import is_

import torch
from torch._prims_common import is_non_overlapping_and_dense_or_false
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks


def fits(optimizer: torch.optim.Optimizer) -> bool:
    """Whether its update is known here: one of the known classes, no other form of it asked for, and no hooks."""
    if type(optimizer) not in _UPDATES or "step" in vars(optimizer) and not hasattr(vars(optimizer)["step"], "_wrapped_by_lr_sched"):
        return False
    if (optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks or _global_optimizer_pre_hooks
            or _global_optimizer_post_hooks):
        return False
    for group in optimizer.param_groups:
        if (group["foreach"] is not None or group["fused"] is False or group.get("capturable") or group["differentiable"] or type(group["lr"]) is not float
                or any(isinstance(beta, torch.Tensor) for beta in group.get("betas", ()))):
            return False
    return True


@functools.lru_cache(maxsize=None)
def _has_kernels(device_type):
    """Whether LibTorch has the fused kernels for this kind of device."""
    key = torch._C._dispatch_key_for_device(_PLUGIN if device_type == torch._C._get_privateuse1_backend_name() else device_type)
    return device_type != "meta" and torch._C._dispatch_has_computed_kernel_for_dispatch_key("aten::_fused_adamw_", key)


_PLUGIN = "privateuseone"  # the dispatcher's name of a device that a plugin registers


def _strides_of(tensors):
    """None where one of them is sparse, and has no strides. Asked in each step, and so without a loop of Python's."""
    try:
        return list(map(torch.Tensor.stride, tensors))
    except RuntimeError:
        return None


def _addresses_of(tensors):
    return list(map(torch.Tensor.data_ptr, tensors))


def _is_alike(tensor, other):
    return tensor.device == other.device and tensor.dtype == other.dtype and _strides_of([tensor]) == _strides_of([other])


def _is_known(parameter):
    return parameter.is_floating_point() and _has_kernels(parameter.device.type) and is_non_overlapping_and_dense_or_false(parameter)


class _Batch:
    """The parameters of a group that one kernel updates: those of one device and one type. The kernels go through memory in its order, so that
    the gradient and the states of a parameter must lie there as it does."""

    def __init__(self, indices, parameters, states):
        self.indices = indices  # in the group
        self.parameters, self.states = ([every[index] for index in indices] for every in (parameters, states))
        self.steps, self.counter = [], None  # the steps of the states, and the tensor whose elements they are
        self.tensors: dict = {}  # the lists of the other states, by their names

    def fit(self, name):
        """Whether the tensors of this name are where the parameters are, and laid out as those, in all states that have them."""
        tensors = [state.get(name) for state in self.states]
        known = self.tensors.get(name)
        if known is None or not all(map(is_, known, tensors)):
            if any(tensor is not None and not _is_alike(tensor, parameter) for tensor, parameter in zip(tensors, self.parameters)):
                return False
            self.tensors[name] = tensors
        return True


class _Group:
    """The settings of a parameter group in its latest update."""

    def __init__(self, parameters, addresses, strides, states):
        self.parameters, self.addresses, self.strides = parameters, addresses, strides
        self.are_known = strides is not None and all(map(_is_known, parameters))
        batches: dict = {}
        for index, parameter in enumerate(parameters):
            batches.setdefault((parameter.device, parameter.dtype), []).append(index)
        self.batches = [_Batch(indices, parameters, states) for indices in batches.values()]


class FusedUpdate:
    """The updates of one optimizer. They run without gradient history, as the engine calls them."""

    def __init__(self, optimizer):
        self.optimizer = optimizer
        self._update, self._state_names = _UPDATES[type(optimizer)]
        self._groups: dict = {}
        self._entries: list = []  # the states of the optimizer when `_groups` was made

    def step(self) -> bool:
        """One update; False when it has to be torch's own step() this time: nothing is changed then."""
        entries = list(self.optimizer.state.values())
        if len(entries) != len(self._entries) or not all(map(is_, entries, self._entries)):  # new, loaded or replaced ones
            self._groups.clear()
        work = []
        for place, group in enumerate(self.optimizer.param_groups):
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if not parameters:
                continue
            gradients = [parameter.grad for parameter in parameters]
            known = self._group(place, parameters)
            if not known.are_known or _strides_of(gradients) != known.strides:
                return False
            names = self._state_names if group.get("amsgrad") else self._state_names[:2]
            for batch in known.batches:
                if not all(map(batch.fit, names)):
                    return False
                work.append((group, batch, gradients if len(known.batches) == 1 else [gradients[index] for index in batch.indices]))
        if self._update is FusedUpdate._sgd and not all(self._has_all_buffers(group, batch) for group, batch, _ in work):
            return False
        for group, batch, gradients in work:
            self._update(self, group, batch, gradients)
        self._entries = list(self.optimizer.state.values())
        self.optimizer._opt_called = True  # for schedulers, which warn when they step first
        return True

    def _group(self, place, parameters):
        known, strides = self._groups.get(place), _strides_of(parameters)
        addresses = strides and _addresses_of(parameters)
        if (known is None or len(known.parameters) != len(parameters) or not all(map(is_, known.parameters, parameters))
                or known.addresses != addresses or known.strides != strides):  # as of a model that was moved
            known = self._groups[place] = _Group(parameters, addresses, strides, [self.optimizer.state[parameter] for parameter in parameters])
        return known

    def _adam(self, group, batch, gradients):
        amsgrad = group["amsgrad"]
        if batch.counter is None or not all(batch.states):
            names = self._state_names[:3 if amsgrad else 2]
            for parameter, state in zip(batch.parameters, batch.states):
                if not state:
                    state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
                    state.update({name: torch.zeros_like(parameter, memory_format=torch.preserve_format) for name in names})
            batch.tensors = {name: [state[name] for state in batch.states] for name in names}
        self._count(batch)
        beta1, beta2 = group["betas"]
        update = torch._fused_adamw_ if group.get("decoupled_weight_decay") else torch._fused_adam_
        update(batch.parameters, gradients, batch.tensors["exp_avg"], batch.tensors["exp_avg_sq"], batch.tensors["max_exp_avg_sq"] if amsgrad else [],
               batch.steps, lr=group["lr"], beta1=beta1, beta2=beta2, weight_decay=group["weight_decay"], eps=group["eps"], amsgrad=amsgrad,
               maximize=group["maximize"])

    def _count(self, batch):
        """Counts a step. The counts are elements of one tensor, since an operator for each takes longer than the update. The kernels read them on
        the device of the parameters, in float32; torch's other forms count on the CPU, and its load_state_dict() leaves the counts where they
        were, so that those that were loaded are moved."""
        steps = [state["step"] for state in batch.states]
        if batch.counter is None or not all(map(is_, steps, batch.steps)):
            device = batch.parameters[0].device
            batch.counter = torch.stack([torch.as_tensor(step, dtype=torch.float32, device=device) for step in steps])
            for state, step in zip(batch.states, batch.counter.unbind()):
                state["step"] = step
            batch.steps = [state["step"] for state in batch.states]
        batch.counter.add_(1)

    def _sgd(self, group, batch, gradients):
        buffers, first = [], False
        if group["momentum"] != 0:
            first = batch.states[0].get("momentum_buffer") is None
            for state, gradient in zip(batch.states, gradients):
                if first:
                    state["momentum_buffer"] = torch.empty_like(gradient)
                buffers.append(state["momentum_buffer"])
        torch._fused_sgd_(batch.parameters, gradients, buffers, weight_decay=group["weight_decay"], momentum=group["momentum"], lr=group["lr"],
                          dampening=group["dampening"], nesterov=group["nesterov"], maximize=group["maximize"], is_first_step=first)

    @staticmethod
    def _has_all_buffers(group, batch):
        """Whether all parameters have a momentum, or none: not when some get their first gradient later than others."""
        missing = sum(state.get("momentum_buffer") is None for state in batch.states)
        return group["momentum"] == 0 or missing in (0, len(batch.states))


# With the names of the states that have the layout of their parameter. Subclasses may compute something else.
_ADAM = FusedUpdate._adam, ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")
_UPDATES = {torch.optim.AdamW: _ADAM, torch.optim.Adam: _ADAM, torch.optim.SGD: (FusedUpdate._sgd, ("momentum_buffer",))}
