# SPDX-License-Identifier: Apache-2.0
"""The costs of the parts of a model of torch, and the order in which it calls them."""

import contextlib
import time

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from .pipeline_cut import balanced


def measured(model, candidates, args, kwargs):
    """The modules with these paths that the model calls exactly once, in this order, and what is computed from each one to the next,
    in floating-point operations. Work before the first one is its own."""
    counter, begins, seen = FlopCounterMode(display=False), [], []

    def note(path):
        def before(*_):
            seen.append(path)
            begins.append(counter.get_total_flops())

        return before

    with contextlib.ExitStack() as stack:
        for path in candidates:
            stack.callback(model.get_submodule(path).register_forward_pre_hook(note(path)).remove)
        stack.enter_context(torch.random.fork_rng())
        stack.enter_context(_evaluating(model))
        stack.enter_context(torch.no_grad())
        with counter:
            model(*args, **kwargs)
    once = [place for place, path in enumerate(seen) if seen.count(path) == 1]
    starts = [0, *(begins[place] for place in once[1:]), counter.get_total_flops()]
    return [seen[place] for place in once], [end - start for start, end in zip(starts, starts[1:])]


def seconds(model, paths, args, kwargs):
    """The time from each module that the model calls to the next one, forwards and backwards, of a second run. Work before the first one is its
    own, and what is behind the last. The modules are called in this order, each once. Gradients, buffers and random numbers stay as they are."""
    tensors = [*model.parameters(), *model.buffers()]
    if any(tensor.is_meta for tensor in tensors):
        raise ValueError(f"split='measured': {type(model).__name__} has no memory to measure with; expected weights, or 'flops'")
    device = next((tensor.device for tensor in tensors), torch.device("cpu"))
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        with torch.random.fork_rng(), torch.enable_grad():
            for _ in range(2):
                costs = _times(model, paths, args, kwargs, device)
        return costs
    finally:
        for parameter, gradient in gradients:
            parameter.grad = gradient
        with torch.no_grad():
            for buffer, values in buffers:
                buffer.copy_(values)


def _times(model, paths, args, kwargs, device):
    modules = [model.get_submodule(path) for path in paths]  # of which some may be one
    forwards, backwards = [], []

    def note(marks):
        return lambda module, *_: marks.append((module, _now(device)))

    for parameter in model.parameters():
        parameter.grad = None
    with contextlib.ExitStack() as stack:
        for module in dict.fromkeys(modules):
            stack.callback(module.register_forward_pre_hook(note(forwards)).remove)
            stack.callback(module.register_full_backward_pre_hook(note(backwards)).remove)
        begun = _now(device)
        outputs = tree_leaves(model(*args, **kwargs))
        total = sum(output.sum() for output in outputs if torch.is_tensor(output) and output.requires_grad)
        middle = _now(device)
        if torch.is_tensor(total):
            total.backward()
        end = _now(device)
    called = [module for module, _ in forwards]
    if called != modules:
        names = dict(zip(modules, paths))
        raise ValueError(f"split='measured': {type(model).__name__} calls {', '.join(names[module] for module in called)}; expected each part once, in "
                         f"this order: {', '.join(paths)}")
    costs, place = [0.0] * len(paths), len(paths)
    for number, cost in enumerate(_between(forwards, begun, middle)):
        costs[number] += cost
    for (module, _), cost in zip(backwards, _between(backwards, middle, end)):
        place = next((number for number in reversed(range(place)) if modules[number] is module), place)
        costs[min(place, len(paths) - 1)] += cost
    return costs


def _between(marks, begun, ended):
    """The time from each mark to the next one; that before the first is its own."""
    times = [begun, *(now for _, now in marks[1:]), ended]
    return [end - begin for begin, end in zip(times, times[1:])]


def _now(device):
    if device.type != "cpu":
        getattr(torch, device.type).synchronize(device)
    return time.perf_counter()


@contextlib.contextmanager
def _evaluating(model):
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def choose(model, candidates, count, args, kwargs):
    """The paths of the modules with which the stages but the first begin."""
    has_weights = not any(parameter.is_meta for parameter in model.parameters())
    paths, costs = measured(model, candidates, args, kwargs) if has_weights and (args or kwargs) else (candidates, ())
    if not any(costs):
        paths = [path for path in paths if path in candidates]
        costs = [sum(tensor.numel() for tensor in model.get_submodule(path).parameters()) for path in paths]
    return [paths[place] for place in balanced(costs, count)[1:]]
