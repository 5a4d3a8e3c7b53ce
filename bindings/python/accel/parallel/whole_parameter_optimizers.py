# SPDX-License-Identifier: Apache-2.0
"""Optimizers of DeepSpeed's configuration whose update looks at whole parameters, with DeepSpeed's defaults: they do not go with sharding."""

import torch


def loss_of(closure):
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


class Lamb(torch.optim.Optimizer):
    """LAMB (You et al., 2020): the update of Adam, as long as the parameter, within `min_coeff` and `max_coeff`."""

    def __init__(self, params, lr=1e-3, bias_correction=True, betas=(0.9, 0.999), eps=1e-8, eps_inside_sqrt=False, weight_decay=0.0, max_coeff=10.0,
                 min_coeff=0.01):
        super().__init__(params, {"lr": lr, "bias_correction": bias_correction, "betas": betas, "eps": eps, "eps_inside_sqrt": eps_inside_sqrt,
                                  "weight_decay": weight_decay, "max_coeff": max_coeff, "min_coeff": min_coeff})

    @torch.no_grad()
    def step(self, closure=None):
        loss = loss_of(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)
        return loss

    def _update(self, parameter, group):
        state, (first, second), eps = self.state[parameter], group["betas"], group["eps"]
        if not state:
            state.update(step=0, exp_avg=torch.zeros_like(parameter), exp_avg_sq=torch.zeros_like(parameter))
        state["step"] += 1
        state["exp_avg"].lerp_(parameter.grad, 1 - first)
        state["exp_avg_sq"].mul_(second).addcmul_(parameter.grad, parameter.grad, value=1 - second)
        root = (state["exp_avg_sq"] + eps).sqrt() if group["eps_inside_sqrt"] else state["exp_avg_sq"].sqrt() + eps
        update = (state["exp_avg"] / root).add_(parameter, alpha=group["weight_decay"])
        size = group["lr"]
        if group["bias_correction"]:
            size *= (1 - second ** state["step"]) ** 0.5 / (1 - first ** state["step"])
        length, own = float(parameter.norm()), float(update.norm())
        if length and own:
            size *= min(max(length / own, group["min_coeff"]), group["max_coeff"])
        parameter.add_(update, alpha=-size)


class MuonWithAdam(torch.optim.Optimizer):
    """Muon for the parameters that say `use_muon`, which without it are the matrices, and AdamW for the others."""

    def __init__(self, params, lr=None, momentum=0.95, weight_decay=0.0, betas=(0.9, 0.95), eps=1e-10, muon_lr=None, adam_lr=None):
        rates = {True: next(rate for rate in (muon_lr, lr, 0.02) if rate is not None), False: next(rate for rate in (adam_lr, lr, 3e-4) if rate is not None)}
        groups = []
        for group in self._groups_of(params):
            for use_muon, parts in self._sorted(group["params"]):
                settings = {"momentum": momentum} if use_muon else {"betas": betas, "eps": eps}
                groups.append({"lr": rates[use_muon], "weight_decay": weight_decay, **settings, **group, "params": parts, "use_muon": use_muon})
        self._parts = {True: torch.optim.Muon, False: torch.optim.AdamW}
        complete = [{**self._complete(group), **group} for group in groups]
        super().__init__(complete, {})

    @staticmethod
    def _groups_of(params):
        params = list(params)
        return params if params and isinstance(params[0], dict) else [{"params": params}]

    @staticmethod
    def _sorted(parameters):
        """Pairs of whether Muon updates them and parameters, without those of which there are none."""
        kinds = {True: [], False: []}
        for parameter in parameters:
            kinds[bool(getattr(parameter, "use_muon", parameter.dim() == 2))].append(parameter)
        return [(kind, parts) for kind, parts in kinds.items() if parts]

    def _complete(self, group):
        """The settings that torch's optimizer of a group has besides."""
        return dict(self._parts[group["use_muon"]]([torch.nn.Parameter(torch.zeros(1, 1))]).defaults)

    @torch.no_grad()
    def step(self, closure=None):
        loss = loss_of(closure)
        for use_muon, kind in self._parts.items():
            groups = [group for group in self.param_groups if group["use_muon"] == use_muon]
            if groups:
                inner = kind([torch.nn.Parameter(torch.zeros(1, 1))])
                inner.param_groups, inner.state = groups, self.state
                inner.step()
        return loss
