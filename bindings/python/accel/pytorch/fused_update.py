"""The update of a torch optimizer by LibTorch's fused kernels, over the optimizer's own parameters, settings and states.

The result is that of the optimizer with fused=True, bit for bit: it is the same kernel. What torch does around it in Python for each step
takes several times as long as the update of a small model, and is left out.
"""

import torch
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks


def fits(optimizer: torch.optim.Optimizer) -> bool:
    """Whether its update is known here: one of the known classes, no other form of it asked for, and no hooks."""
    if type(optimizer) not in _UPDATES or "step" in vars(optimizer) and not hasattr(vars(optimizer)["step"], "_wrapped_by_lr_sched"):
        return False
    if (optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks or _global_optimizer_pre_hooks
            or _global_optimizer_post_hooks):
        return False
    return all(_group_fits(group) for group in optimizer.param_groups)


def _group_fits(group):
    if group.get("foreach") or group.get("fused") is False or group.get("capturable") or group.get("differentiable"):
        return False
    return type(group["lr"]) is float and all(
        parameter.device.type in ("cpu", "cuda") and parameter.is_floating_point() and parameter.layout == torch.strided
        for parameter in group["params"])


class FusedUpdate:
    """The updates of one optimizer."""

    def __init__(self, optimizer):
        self.optimizer = optimizer
        self._update = _UPDATES[type(optimizer)]
        self._counters: dict = {}  # of each group: the steps of its parameters, and the tensor whose elements they are

    @torch.no_grad()
    def step(self) -> bool:
        """One update; False when it has to be torch's own step() this time: nothing is changed then."""
        work = []
        for group in self.optimizer.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            gradients = [parameter.grad for parameter in parameters]
            if any(gradient.layout != torch.strided for gradient in gradients):
                return False
            work.append((group, parameters, gradients))
        if self._update is FusedUpdate._sgd and not all(self._has_all_buffers(*entry) for entry in work):
            return False
        for entry in work:
            if entry[1]:
                self._update(self, *entry)
        self.optimizer._opt_called = True  # for schedulers, which warn when they step first
        return True

    def _adam(self, group, parameters, gradients):
        states = [self.optimizer.state[parameter] for parameter in parameters]
        amsgrad = group["amsgrad"]
        for parameter, state in zip(parameters, states):
            if not state:
                state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
                for name in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")[:3 if amsgrad else 2]:
                    state[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        self._count(group, states)
        beta1, beta2 = group["betas"]
        update = torch._fused_adamw_ if group.get("decoupled_weight_decay") else torch._fused_adam_
        update(parameters, gradients, [state["exp_avg"] for state in states], [state["exp_avg_sq"] for state in states],
               [state["max_exp_avg_sq"] for state in states] if amsgrad else [], [state["step"] for state in states], lr=group["lr"],
               beta1=beta1, beta2=beta2, weight_decay=group["weight_decay"], eps=group["eps"], amsgrad=amsgrad, maximize=group["maximize"])

    def _count(self, group, states):
        """Counts a step. The counts are elements of one tensor, since an operator for each takes longer than the update."""
        steps = [state["step"] for state in states]
        known, counter = self._counters.get(id(group), ((), None))
        if len(known) != len(steps) or any(new is not old for new, old in zip(steps, known)):
            counter = torch.stack(steps)
            for state, step in zip(states, counter.unbind()):
                state["step"] = step
            self._counters[id(group)] = [state["step"] for state in states], counter
        counter += 1

    def _sgd(self, group, parameters, gradients):
        states = [self.optimizer.state[parameter] for parameter in parameters]
        buffers, first = [], False
        if group["momentum"] != 0:
            first = states[0].get("momentum_buffer") is None
            for state, gradient in zip(states, gradients):
                if first:
                    state["momentum_buffer"] = torch.empty_like(gradient)
                buffers.append(state["momentum_buffer"])
        torch._fused_sgd_(parameters, gradients, buffers, weight_decay=group["weight_decay"], momentum=group["momentum"], lr=group["lr"],
                          dampening=group["dampening"], nesterov=group["nesterov"], maximize=group["maximize"], is_first_step=first)

    def _has_all_buffers(self, group, parameters, _gradients):
        """Whether all parameters have a momentum, or none: not when some get their first gradient later than others."""
        missing = sum(self.optimizer.state[parameter].get("momentum_buffer") is None for parameter in parameters)
        return group["momentum"] == 0 or missing in (0, len(parameters))


# Subclasses may compute something else.
_UPDATES = {torch.optim.AdamW: FusedUpdate._adam, torch.optim.Adam: FusedUpdate._adam, torch.optim.SGD: FusedUpdate._sgd}
