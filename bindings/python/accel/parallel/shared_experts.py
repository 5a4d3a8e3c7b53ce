# SPDX-License-Identifier: Apache-2.0
"""Experts of a torch model that are shared out over the ranks of the axis expert: the engine cuts the parameters along their first dimension, and
forwards of the modules that have them send tokens to the ranks of their experts, and the results back."""

import inspect
import logging
import math

import torch

from .. import capi
from ..generated import errors
from .plan_rules import first_match, read

_PARAMETER, _MODULE, _ROUTER = "grouped_gemm", "ep_dispatch_experts", "ep_router"
STYLES = (_PARAMETER, _MODULE, _ROUTER)
_logger = logging.getLogger(__name__)


def prepare(model: torch.nn.Module, state, options) -> "SharedExperts | None":
    """Takes the rules of experts out of the plan of a model that is about to be prepared; None: each rank has all its experts."""
    shared = _shared_of(model, state, options)
    if shared is None and options.expert_parallel.capacity_factor > 0:
        _logger.warning("capacity_factor is %s, and no experts of %s are shared out, as ep_size does: none drops a token",
                        options.expert_parallel.capacity_factor, type(model).__name__)
    return shared


def _shared_of(model, state, options):
    text = options.tensor_parallel.plan or "auto"
    if options.split_by_program == 1:
        return None
    is_of_family = text in ("auto", "none")
    given = [] if is_of_family else read(text)
    rules = [rule for rule in given if rule[1] in STYLES]
    if rules:
        options.tensor_parallel.plan = "; ".join(" ".join(rule) for rule in given if rule not in rules) or "none"
    if options.evaluation_mode == 1:
        return None
    try:
        ranks = capi.accel_mesh_size(capi.accel_state_mesh(state), "expert")
    except errors.NotFoundError:  # the state has no such axis
        if rules:
            _logger.warning("the plan has rules that share experts out, and ep_size is 1: none is")
        return None
    if not rules:
        rules, is_of_family = list((getattr(model, "ep_plan", None) or {}).items()), True
    shared = SharedExperts(model, rules, ranks, options.expert_parallel, is_of_family)
    return shared if shared.rules else None


class SharedExperts:
    """The modules with experts that a plan names."""

    def __init__(self, model, rules, ranks, options, is_of_family):
        self.are_split = options.tensor_parallel_experts == 1  # along tensor, too
        self.patterns = [pattern for pattern, style in rules if style == _MODULE]
        self.rules, self.layers, used = [], [], set()
        for path, module in model.named_modules():
            number = first_match(rules, path)
            used.add(number)
            names = []
            for name, _ in module.named_parameters(recurse=False):
                of_parameter = first_match(rules, f"{path}.{name}" if path else name)
                used.add(of_parameter)
                if of_parameter is not None and rules[of_parameter][1] == _PARAMETER:
                    names.append(name)
            is_of_experts = number is not None and rules[number][1] == _MODULE
            if is_of_experts and not names:
                names = [name for name, _ in module.named_parameters(recurse=False)]
            if is_of_experts and not names:
                raise ValueError(f"{path}: the style {_MODULE!r} of the plan: {type(module).__name__} has no parameters of its own; expected a module with "
                                 "parameters whose first dimension are the experts")
            self.rules += [f"{path}.{name} {_PARAMETER}" if path else f"{name} {_PARAMETER}" for name in names]
            if is_of_experts:
                self.layers.append(Experts(path, module, names[0], ranks, options.capacity_factor))
        unused = [" ".join(rule) for number, rule in enumerate(rules) if number not in used]
        if unused and not is_of_family:
            raise ValueError(f"the rule {unused[0]!r} of the plan matches no module and no parameter of {type(model).__name__}")
        left = [path for path, module in model.named_modules() if "Expert" in type(module).__name__]
        if not self.rules and left:
            raise ValueError(f"{type(model).__name__} has no ep_plan for its experts, such as {left[0]}, and ep_size is {ranks}: expected rules, "
                             f"prepare_model(model, tensor_parallel={{'plan': '{left[0]} ep_dispatch_experts'}}), or ep_size=1")

    def plan_with(self, plan):
        """The plan of the other layers, with the rules for parameters of experts."""
        return "; ".join([*([] if plan in ("auto", "none") else [plan]), *self.rules])

    def leaves_whole(self, pattern):
        """Whether a rule of a family's plan is for a module whose experts are shared out as a whole, or inside of one."""
        return not self.are_split and any(pattern == known or pattern.startswith(f"{known}.") for known in self.patterns)

    def add_hooks(self):
        """After the engine has cut the parameters."""
        for layer in self.layers:
            layer.add_hook()


class Experts:
    """A module with the parameters of several experts. It is called with tokens [tokens, size], and for each token the numbers and the weights of
    its experts, [tokens, experts of a token]; it returns the weighted sums."""

    def __init__(self, path, module, parameter, ranks, capacity_factor):
        self.path, self.module, self.ranks = path, module, ranks
        self.capacity_factor = max(capacity_factor, 0.0)  # one that is not set is below 0
        self.weight = getattr(module, parameter)
        self.number = self.weight.shape[0]  # of all experts
        self.forward = module.forward
        self.signature = inspect.signature(self.forward)
        if len(self.signature.parameters) < 3:
            raise ValueError(f"{path}: the forward of {type(module).__name__} takes {self.signature}; expected tokens [tokens, size], and the numbers and the "
                             "weights of their experts, [tokens, experts of a token]")
        if self.number % ranks:
            raise ValueError(f"{path}: {self.number} experts, and ep_size is {ranks}; expected a number of experts that it divides")

    def add_hook(self):
        for name in ("num_experts", "num_local_experts"):
            if getattr(self.module, name, None) == self.number:
                setattr(self.module, name, self.number // self.ranks)
        self.module.forward = self.dispatched

    def dispatched(self, *args, **kwargs):
        """The module's forward, each token at the ranks of its experts."""
        given = self.signature.bind(*args, **kwargs)
        first, *others = list(given.arguments)[:3]
        states = given.arguments[first]
        experts, weights = sorted(others, key=lambda name: given.arguments[name].is_floating_point())
        chosen, shares = given.arguments[experts], given.arguments[weights]
        per_token, tokens = chosen.shape[-1], states.reshape(-1, states.shape[-1])
        places = chosen.reshape(-1)
        counts = torch.bincount(places, minlength=self.number)
        if counts.shape[0] > self.number:
            raise ValueError(f"{self.path}: tokens for expert {counts.shape[0] - 1}, and there are {self.number}; expected their numbers alone")
        order = torch.argsort(places, stable=True)
        if self.capacity_factor:
            most = max(1, math.ceil(places.shape[0] / self.number * self.capacity_factor))
            begins = torch.cumsum(counts, 0) - counts
            order = order[torch.arange(order.shape[0], device=order.device) - begins[places[order]] < most]
            counts = counts.clamp(max=most)
        rows, received = torch.ops.accel.dispatch_tokens(tokens[order // per_token], counts, self.weight)
        of_own = torch.arange(received.shape[1]).repeat_interleave(received.sum(0)).to(chosen).unsqueeze(-1)
        given.arguments.update({experts: of_own, weights: shares.new_ones(of_own.shape)})
        results = self._own(given, first, rows, experts, weights)
        results = torch.ops.accel.combine_tokens(results, counts, received, self.weight)
        of_places = results.new_zeros(places.shape[0], results.shape[-1]).index_copy(0, order, results)
        sums = (of_places.view(-1, per_token, results.shape[-1]) * shares.reshape(-1, per_token, 1)).sum(1)
        return sums.to(states.dtype).view(*states.shape[:-1], sums.shape[-1])

    def _own(self, given, first, rows, experts, weights):
        if rows.shape[0] > 0:
            given.arguments[first] = rows
            return self.forward(*given.args, **given.kwargs)
        # Without tokens this rank takes part in the backward all the same: a row of zeros leads to the parameters.
        given.arguments.update({first: rows.sum(0, keepdim=True), experts: given.arguments[experts].new_zeros(1, 1),
                                weights: given.arguments[weights].new_ones(1, 1)})
        return self.forward(*given.args, **given.kwargs)[:0]
