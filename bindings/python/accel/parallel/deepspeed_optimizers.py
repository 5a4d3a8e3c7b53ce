# SPDX-License-Identifier: Apache-2.0
"""The optimizers that DeepSpeed's configuration can name, from torch, with DeepSpeed's defaults."""

import torch

from .whole_parameter_optimizers import Lamb, MuonWithAdam, loss_of

_NOT_HERE = {
    "onebitadam": "it exchanges gradients of one bit",
    "zerooneadam": "it exchanges gradients of one bit", "onebitlamb": "it exchanges gradients of one bit", "muadam": "it is of the package mup",
    "muadamw": "it is of the package mup", "musgd": "it is of the package mup",
}
_OF_WHOLE_PARAMETERS = {"lamb": Lamb, "muon": MuonWithAdam}
# Settings of DeepSpeed's kernels that change no number, with the only value that is known here.
_OF_KERNELS = {"bias_correction": True, "fp32_optimizer_states": True, "set_grad_none": True}


class Lion(torch.optim.Optimizer):
    """Lion (Chen et al., 2023), with the defaults of DeepSpeed."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        loss = loss_of(closure)
        for group in self.param_groups:
            first, second = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["exp_avg"] = torch.zeros_like(parameter)
                direction = state["exp_avg"].lerp(parameter.grad, 1 - first).sign_()
                parameter.mul_(1 - group["lr"] * group["weight_decay"]).add_(direction, alpha=-group["lr"])
                state["exp_avg"].lerp_(parameter.grad, 1 - second)
        return loss


def make(kind, params, given, is_sharded=False):
    """The optimizer of a name, for parameters of which with `is_sharded` each rank has a part. DeepSpeed's Adam decays weights as AdamW by default, and by 0 where no rate is set."""
    settings = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    name = kind.lower()
    if name in _NOT_HERE:
        raise NotImplementedError(f"optimizer.type={kind!r}: {_NOT_HERE[name]}; expected Adam, AdamW, Adagrad, Lion, Lamb, Muon or a class of torch.optim in "
                                  "DeepSpeed's configuration, or an optimizer in the code")
    if "max_grad_norm" in settings:
        raise ValueError("optimizer.params.max_grad_norm of DeepSpeed's configuration: expected gradient_clipping, which clips, in its place")
    if name in _OF_WHOLE_PARAMETERS:
        if is_sharded:
            raise NotImplementedError(f"optimizer.type={kind!r}: its update needs whole parameters, and several ranks share them; expected "
                                      "zero_optimization.stage 0, or Adam, AdamW, Adagrad or Lion")
        return _OF_WHOLE_PARAMETERS[name](params, **settings)
    for key, only in _OF_KERNELS.items():
        if settings.pop(key, only) != only:
            raise NotImplementedError(f"optimizer.params.{key}={given[key]} of DeepSpeed's configuration: expected {only}")
    if name in ("adam", "adamw"):
        decays, is_torch = settings.pop("adam_w_mode", True) or name == "adamw", settings.pop("torch_adam", False)
        if not is_torch:
            settings.setdefault("weight_decay", 0.0)
        return (torch.optim.AdamW if decays else torch.optim.Adam)(params, **settings)
    if name == "lion":
        return Lion(params, **settings)
    made = {"adagrad": torch.optim.Adagrad, "sgd": torch.optim.SGD}.get(name) or getattr(torch.optim, kind, None)
    if not (isinstance(made, type) and issubclass(made, torch.optim.Optimizer)):
        raise NotImplementedError(f"optimizer.type={kind!r}: expected Adam, AdamW, Adagrad, Lion, Lamb, Muon or a class of torch.optim in DeepSpeed's configuration, "
                                  "or an optimizer in the code")
    return made(params, **settings)
