#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what torch.optim's classes do, as tests/parity/fixtures/optimizers.json.

usage: optimizers.py [--seed N] > fixtures/optimizers.json     (with torch 2.13)

Lion and LAMB, which torch has not, are computed from their papers in float64. A case has two groups, the second with half
the learning rate and no weight decay, and takes `before` steps, gives its state dict, and takes the rest of the steps.
"""

import argparse
import json

import torch

SHAPES = [[3, 4], [5], [2, 2, 3], [1]]
MATRICES = [[5, 4], [3, 6]]
STEPS, BEFORE = 8, 5


class FromPaper:
    """The outside of torch.optim for an update of one parameter in float64."""

    def __init__(self, groups, **defaults):
        self.param_groups = [dict(defaults, **group) for group in groups]
        self.state = {}

    def step(self):
        index = 0
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state.setdefault(index, self.begin(parameter))
                with torch.no_grad():
                    sign = -1 if group["maximize"] else 1
                    parameter.copy_(self.update(parameter.double(), sign * parameter.grad.double(), state, group))
                index += 1

    def state_dict(self):
        index, groups = 0, []
        for group in self.param_groups:
            count = len(group["params"])
            groups.append(dict(group, params=list(range(index, index + count))))
            index += count
        return {"state": self.state, "param_groups": groups}


class Lion(FromPaper):
    """Chen et al., 2023, algorithm 2."""

    def begin(self, parameter):
        return {"exp_avg": torch.zeros_like(parameter, dtype=torch.double)}

    def update(self, theta, gradient, state, group):
        (beta1, beta2), momentum = group["betas"], state["exp_avg"]
        direction = torch.sign(beta1 * momentum + (1 - beta1) * gradient)
        state["exp_avg"] = beta2 * momentum + (1 - beta2) * gradient
        return theta - group["lr"] * (direction + group["weight_decay"] * theta)


class Lamb(FromPaper):
    """You et al., 2020, algorithm 2 with the identity for phi."""

    def begin(self, parameter):
        zeros = torch.zeros_like(parameter, dtype=torch.double)
        return {"step": torch.tensor(0.0), "exp_avg": zeros, "exp_avg_sq": zeros}

    def update(self, theta, gradient, state, group):
        beta1, beta2 = group["betas"]
        state["step"] = state["step"] + 1
        step = state["step"].item()
        state["exp_avg"] = beta1 * state["exp_avg"] + (1 - beta1) * gradient
        state["exp_avg_sq"] = beta2 * state["exp_avg_sq"] + (1 - beta2) * gradient**2
        first, second = state["exp_avg"] / (1 - beta1**step), state["exp_avg_sq"] / (1 - beta2**step)
        direction = first / (second.sqrt() + group["eps"]) + group["weight_decay"] * theta
        ratio = theta.norm() / direction.norm() if theta.norm() > 0 and direction.norm() > 0 else 1
        return theta - group["lr"] * ratio * direction


CLASSES = {name.lower(): getattr(torch.optim, name) for name in
           ("SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "Adamax", "NAdam", "RAdam", "Adafactor", "Muon")}
CLASSES.update(lion=Lion, lamb=Lamb)
# What the classes from papers need to be told, and torch's know.
PAPER = {"lion": {"lr": 1e-4, "betas": (0.9, 0.99), "weight_decay": 0.0, "maximize": False},
         "lamb": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.01, "maximize": False}}
# As torch names them; the values as the C API takes them follow by `flat`.
VARIANTS = {
    "sgd": [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
            {"momentum": 0.8, "dampening": 0.3, "maximize": True}],
    "adam": [{}, {"weight_decay": 0.1, "betas": (0.8, 0.9)}, {"amsgrad": True, "betas": (0.9, 0.5)}, {"maximize": True}],
    "adamw": [{}, {"weight_decay": 0.3, "eps": 1e-3}, {"amsgrad": True, "betas": (0.9, 0.5)}, {"maximize": True}],
    "adagrad": [{}, {"lr_decay": 0.1, "weight_decay": 0.1}, {"initial_accumulator_value": 0.5, "maximize": True}],
    "rmsprop": [{}, {"momentum": 0.9}, {"centered": True, "weight_decay": 0.1},
                {"centered": True, "momentum": 0.5, "alpha": 0.9, "maximize": True}],
    "adamax": [{}, {"weight_decay": 0.1, "betas": (0.8, 0.9), "maximize": True}],
    "nadam": [{}, {"weight_decay": 0.1, "momentum_decay": 0.05},
              {"weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}],
    "radam": [{}, {"weight_decay": 0.1, "betas": (0.9, 0.8)},
              {"weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}],
    "adafactor": [{}, {"weight_decay": 0.1, "d": 2.0, "beta2_decay": -0.5}, {"eps": (1e-6, 0.1), "maximize": True}],
    "muon": [{}, {"nesterov": False, "weight_decay": 0.3, "adjust_lr_fn": "match_rms_adamw", "ns_steps": 3}],
    "lion": [{}, {"weight_decay": 0.3, "betas": (0.8, 0.9), "maximize": True}],
    "lamb": [{}, {"weight_decay": 0.3, "betas": (0.8, 0.9), "maximize": True}],
}
PLACES = {"betas": ("beta1", "beta2"), "eps": ("eps1", "eps2")}


def encode(value):
    """Tensors, tuples and numbers as the fixtures write them."""
    if isinstance(value, torch.Tensor):
        digits = 17 if value.dtype is torch.double else 9
        return {"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape),
                "values": [float(f"{number:.{digits}g}") for number in value.flatten().tolist()]}
    if isinstance(value, dict):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    return value


def flat(options):
    """The options by the names of the C API: numbers only."""
    result = {}
    for key, value in options.items():
        if isinstance(value, tuple):
            result.update(zip(PLACES[key], value))
        elif key == "adjust_lr_fn":
            result[key] = ["original", "match_rms_adamw"].index(value)
        else:
            result[key] = float(value)
    return {key: float(value) for key, value in result.items()}


def record(name, options, dtype, generator):
    shapes = MATRICES if name == "muon" else SHAPES
    parameters = [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]
    gradients = [[torch.randn(shape, generator=generator).to(dtype) for shape in shapes] for _ in range(STEPS)]
    lr = 0.05
    half = len(parameters) // 2
    groups = [{"params": parameters[:half]}, {"params": parameters[half:], "lr": lr / 2, "weight_decay": 0.0}]
    given = {"optimizer": name, "settings": flat(dict(options, lr=lr)), "groups": [half, len(parameters) - half],
             "parameters": encode([parameter.detach().clone() for parameter in parameters]),
             "gradients": encode(gradients), "before": BEFORE}
    optimizer = CLASSES[name](groups, **dict(PAPER.get(name, {}), **options, lr=lr))
    expected = {}
    for step, current in enumerate(gradients):
        if step == BEFORE:
            expected["state_dict"] = encode(optimizer.state_dict())
            expected["parameters_before"] = encode([parameter.detach().clone() for parameter in parameters])
        for parameter, gradient in zip(parameters, current):
            parameter.grad = gradient
        optimizer.step()
    expected["parameters"] = encode([parameter.detach() for parameter in parameters])
    return given, expected


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    seed = parser.parse_args().seed
    generator = torch.Generator().manual_seed(seed)
    cases = []
    for name, variants in VARIANTS.items():
        for options in variants:
            for dtype in (torch.float32, torch.float64):
                if dtype is torch.float64 and (options or name in ("muon", "lion", "lamb")):
                    continue
                given, expected = record(name, options, dtype, generator)
                label = " ".join([name, str(dtype).removeprefix("torch."), *(f"{key}={value}" for key, value in options.items())])
                cases.append(json.dumps({"name": label, "input": given, "expected": expected}))
    about = ("An optimizer with two groups, the second with half the learning rate and no weight decay. Expected: the "
             "parameters after `before` steps, the state dict then, and the parameters after all steps. Settings have the "
             "names of the C API.")
    print("{" + f'"about": {json.dumps(about)}, "reference": "torch {torch.__version__}", "seed": {seed}, "cases": [')
    print(",\n".join(cases))
    print("]}")


if __name__ == "__main__":
    main()
