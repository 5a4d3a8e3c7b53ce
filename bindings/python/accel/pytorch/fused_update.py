"""The update of a torch optimizer by LibTorch's fused kernels, over the optimizer's own parameters, settings and states.

The result is that of the optimizer with fused=True, bit for bit: it is the same kernel. What torch does around it in Python for each step
takes several times as long as the update of a small model, and is left out.
"""

from operator import is_

import torch
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks


def fits(optimizer: torch.optim.Optimizer) -> bool:
    """Whether its update is known here: one of the known classes, no other form of it asked for, and no hooks."""
    if type(optimizer) not in _UPDATES or "step" in vars(optimizer) and not hasattr(vars(optimizer)["step"], "_wrapped_by_lr_sched"):
        return False
    if (optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks or _global_optimizer_pre_hooks
            or _global_optimizer_post_hooks):
        return False
    for group in optimizer.param_groups:
        if group["foreach"] or group["fused"] is False or group.get("capturable") or group["differentiable"] or type(group["lr"]) is not float:
            return False
    return True


def _is_known(parameter):
    return parameter.device.type in ("cpu", "cuda") and parameter.is_floating_point() and parameter.layout == torch.strided


class _Group:
    """What a parameter group had in its latest update."""

    def __init__(self, parameters, states):
        self.parameters, self.states = parameters, states
        self.are_known = all(map(_is_known, parameters))
        self.steps, self.counter = [], None  # the steps of the states, and the tensor whose elements they are


class FusedUpdate:
    """The updates of one optimizer. They run without gradient history, as the engine calls them."""

    def __init__(self, optimizer):
        self.optimizer = optimizer
        self._update = _UPDATES[type(optimizer)]
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
            gradients = [parameter.grad for parameter in parameters]
            if parameters:
                known = self._group(place, parameters)
                if not known.are_known or any(gradient.layout is not torch.strided for gradient in gradients):
                    return False
                work.append((group, known, gradients))
        if self._update is FusedUpdate._sgd and not all(self._has_all_buffers(group, known) for group, known, _ in work):
            return False
        for group, known, gradients in work:
            self._update(self, group, known, gradients)
        self._entries = list(self.optimizer.state.values())
        self.optimizer._opt_called = True  # for schedulers, which warn when they step first
        return True

    def _group(self, place, parameters):
        known = self._groups.get(place)
        if known is None or len(known.parameters) != len(parameters) or not all(map(is_, known.parameters, parameters)):
            known = self._groups[place] = _Group(parameters, [self.optimizer.state[parameter] for parameter in parameters])
        return known

    def _adam(self, group, known, gradients):
        amsgrad = group["amsgrad"]
        for parameter, state in zip(known.parameters, known.states):
            if not state:
                state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
                for name in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")[:3 if amsgrad else 2]:
                    state[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        self._count(known)
        beta1, beta2 = group["betas"]
        update = torch._fused_adamw_ if group.get("decoupled_weight_decay") else torch._fused_adam_
        update(known.parameters, gradients, [state["exp_avg"] for state in known.states], [state["exp_avg_sq"] for state in known.states],
               [state["max_exp_avg_sq"] for state in known.states] if amsgrad else [], known.steps, lr=group["lr"], beta1=beta1, beta2=beta2,
               weight_decay=group["weight_decay"], eps=group["eps"], amsgrad=amsgrad, maximize=group["maximize"])

    def _count(self, known):
        """Counts a step. The counts are elements of one tensor, since an operator for each takes longer than the update."""
        steps = [state["step"] for state in known.states]
        if known.counter is None or not all(map(is_, steps, known.steps)):
            known.counter = torch.stack(steps)
            for state, step in zip(known.states, known.counter.unbind()):
                state["step"] = step
            known.steps = [state["step"] for state in known.states]
        known.counter.add_(1)

    def _sgd(self, group, known, gradients):
        buffers, first = [], False
        if group["momentum"] != 0:
            first = known.states[0].get("momentum_buffer") is None
            for state, gradient in zip(known.states, gradients):
                if first:
                    state["momentum_buffer"] = torch.empty_like(gradient)
                buffers.append(state["momentum_buffer"])
        torch._fused_sgd_(known.parameters, gradients, buffers, weight_decay=group["weight_decay"], momentum=group["momentum"], lr=group["lr"],
                          dampening=group["dampening"], nesterov=group["nesterov"], maximize=group["maximize"], is_first_step=first)

    @staticmethod
    def _has_all_buffers(group, known):
        """Whether all parameters have a momentum, or none: not when some get their first gradient later than others."""
        missing = sum(state.get("momentum_buffer") is None for state in known.states)
        return group["momentum"] == 0 or missing in (0, len(known.states))


# Subclasses may compute something else.
_UPDATES = {torch.optim.AdamW: FusedUpdate._adam, torch.optim.Adam: FusedUpdate._adam, torch.optim.SGD: FusedUpdate._sgd}
