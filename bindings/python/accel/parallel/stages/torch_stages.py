# SPDX-License-Identifier: Apache-2.0
"""Stages of models of torch: runs of the parts that a model calls one after the other.

Stages pass trees of tensors and numbers. The first stage gets {"args", "named"}, what the model was called with.
"""

import inspect

import torch

from .block_stages import BlockStage
from .pipeline_cut import balanced
from .stage_costs import choose, measured
from .stage_modules import place


class SequentialChain:
    """An nn.Sequential: its modules are the parts."""

    chunk_rows = 0

    @classmethod
    def of(cls, model):
        is_plain = isinstance(model, torch.nn.Sequential) and type(model).forward is torch.nn.Sequential.forward
        return cls(model) if is_plain else None

    def __init__(self, model):
        self.model, self.names = model, list(model._modules)

    def can_split(self, split_points):
        return all(name in self.names for name in split_points)

    def choose(self, count, args, kwargs):
        return choose(self.model, self.names, count, args, kwargs)

    def stage(self, split_points, index, device):
        bounds = [0, *map(self.names.index, split_points), len(self.names)]
        if bounds != sorted(set(bounds)):
            raise ValueError(f"split_points={list(split_points)}: expected names of modules behind the first one, in their order")
        modules = [self.model._modules[name] for name in self.names[bounds[index]:bounds[index + 1]]]
        for module in modules:
            place(module, (), device)

        def run(value):
            passed = value["passed"] if index else value["args"][0] if value["args"] else value["named"]["input"]
            for module in modules:
                passed = module(passed)
            return passed if index == len(split_points) else {"passed": passed}

        return run


class BlockChain:
    """A model that calls the blocks of one list after each other. Every stage calls the forward of the whole model with the same
    inputs, so that masks and positions are those of the model itself; only the blocks of other stages are not computed: before those
    of a stage stands what the former stage has computed, and behind them the forward is left."""

    chunk_rows = 0

    @classmethod
    def of(cls, model):
        path = _path_of_blocks(model)
        return None if path is None else cls(model, path)

    def __init__(self, model, path):
        self.model, self.path = model, path
        self.blocks = list(model.get_submodule(path))
        self.names = [f"{path}.{name}" for name in model.get_submodule(path)._modules]
        places = {block: self.blocks.index(block) for block in self.blocks}
        twice = next((place for place, block in enumerate(self.blocks) if places[block] != place), None)
        if twice is not None:
            raise NotImplementedError(f"{self.names[twice]} of {type(model).__name__} is {self.names[places[self.blocks[twice]]]} again: a stage computes its blocks "
                                      "once; expected a module for each block")
        self.forward = model.forward
        self.signature = inspect.signature(model.forward)

    def by_name(self, args, named):
        """The inputs of a call by their names."""
        parameters = self.signature.parameters.values()
        bound = dict(self.signature.bind(*args, **named).arguments)
        rest = next((bound.pop(parameter.name, {}) for parameter in parameters if parameter.kind is inspect.Parameter.VAR_KEYWORD), {})
        return {**bound, **rest}

    def _behind(self):
        """Modules that may be called behind the blocks: those beside the list of them, and beside the module that it is in."""
        above = self.path.split(".")[:-1]
        prefixes = ["".join(f"{name}." for name in above[:depth]) for depth in range(len(above) + 1)]
        return [f"{prefix}{name}" for prefix in prefixes for name, _ in self.model.get_submodule(prefix.rstrip(".")).named_children()
                if not f"{self.path}.".startswith(f"{prefix}{name}.")]

    def can_split(self, split_points):
        return all(name in self.names for name in split_points[:-1]) and split_points[-1] in (*self.names, *self._behind())

    def choose(self, count, args, kwargs):
        if not args and not kwargs or any(parameter.is_meta for parameter in self.model.parameters()):
            return choose(self.model, self.names, count, (), {})
        paths, costs = measured(self.model, [*self.names, *self._behind()], args, kwargs)
        first, last = paths.index(self.names[0]), paths.index(self.names[-1])
        kept = slice(first, last + 2)  # what is behind the blocks is one part
        costs = [sum(costs[:first + 1]), *costs[first + 1:last + 1], sum(costs[last + 1:])][:len(paths[kept])]
        return [paths[kept][place] for place in balanced(costs, count)[1:]]

    def stage(self, split_points, index, device):
        bounds = [0, *(self.names.index(name) if name in self.names else len(self.names) for name in split_points), len(self.names)]
        if bounds[:-1] != sorted(set(bounds[:-1])):
            raise ValueError(f"split_points={list(split_points)}: expected blocks behind {self.names[0]}, in their order")
        stage = BlockStage(self, bounds[index], bounds[index + 1], index == len(split_points))
        place(self.model, {*stage.before, *self.blocks[bounds[index + 1]:]}, device)
        return stage


def _path_of_blocks(model):
    """The path of the one list of blocks of a model: that of its plan for pipelines, of a model of transformers without one that of modules that must
    not be split. None where there is none or several."""
    if not hasattr(model, "base_model_prefix"):
        return _only([path for path in getattr(model, "_pp_plan", None) or () if _is_list(dict(model.named_modules()).get(path))])
    config = getattr(model, "config", None)
    if config is None or getattr(config, "is_encoder_decoder", False):
        return None
    if getattr(config, "num_kv_shared_layers", None):  # blocks take more than what the one before returns
        return None
    lists = {path: module for path, module in model.named_modules() if isinstance(module, torch.nn.ModuleList) and len(module) > 0}
    base = model.base_model
    prefix = next((f"{path}." if path else "" for path, module in model.named_modules() if module is base), "")
    planned = [f"{prefix}{name}" for name in getattr(config, "base_model_pp_plan", None) or () if f"{prefix}{name}" in lists]
    classes = set(getattr(model, "_no_split_modules", None) or ())
    found = planned or [path for path, module in lists.items() if all(type(block).__name__ in classes for block in module)]
    return _only(found)


def _is_list(module):
    return isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential)) and len(module) > 0


def _only(paths):
    return paths[0] if len(paths) == 1 else None
