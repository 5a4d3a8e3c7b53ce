"""What the parts of a model of torch cost, and in which order it calls them."""

import contextlib

import torch
from torch.utils.flop_counter import FlopCounterMode

from .pipeline_cut import balanced


def measured(model, candidates, args, kwargs):
    """Those of the modules with these paths that the model calls exactly once, in this order, and what is computed from each one to the next,
    in floating-point operations. What comes before the first one is its own."""
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
