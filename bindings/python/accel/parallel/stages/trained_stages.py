# SPDX-License-Identifier: Apache-2.0
"""How a model of torch is cut into stages that are trained: the parts that it has in the engine, and where a stage may begin."""

import torch

from .block_stages import BlockStage
from .pipeline_cut import balanced
from .stage_costs import seconds
from .torch_stages import BlockChain, SequentialChain

_COSTS = ("parameters", "flops")


class Unit:
    """A unit stays in one stage: the paths of modules, of which a stage may begin with the first. `name` is shown and given to say so."""

    def __init__(self, name, paths):
        self.name, self.paths = name, paths

    def cost(self, model, kind):
        """The elements of its parameters, or of those that a row is multiplied with."""
        modules = [module for path in self.paths for module in model.get_submodule(path).modules()]
        tensors = {id(tensor): tensor for module in modules if kind == "parameters" or not isinstance(module, torch.nn.Embedding)
                   for tensor in module._parameters.values() if tensor is not None and (kind == "parameters" or tensor.dim() > 1)}
        return sum(tensor.numel() for tensor in tensors.values())


class TrainedSequential:
    """An nn.Sequential: its modules are the parts."""

    def __init__(self, chain):
        self.model, self.containers = chain.model, {chain.model}
        self.units = [Unit(name, [name]) for name in chain.names]

    def stage(self, begin, end):
        """The function of the units from `begin` to `end`."""
        modules = [self.model._modules[unit.name] for unit in self.units[begin:end]]
        is_last = end == len(self.units)

        def run(value):
            passed = value["passed"] if "passed" in value else value["args"][0] if value["args"] else value["named"]["input"]
            for module in modules:
                passed = module(passed)
            return passed if is_last else {"passed": passed}

        return run


class TrainedBlocks:
    """A model with one list of blocks. With the first of them goes what the model has before them, and what it has behind them is a unit. A
    module without parameters is in no unit: every stage has it."""

    def __init__(self, chain):
        self.chain, self.model, self.containers = chain, chain.model, set()
        self._dropout, before, behind = {}, [], []
        for path, module, is_behind in self._beside_blocks(chain.model, chain.path.split("."), ""):
            if any(True for _ in module.parameters()):
                (behind if is_behind else before).append(path)
            elif isinstance(module, torch.nn.Dropout) and not is_behind:
                self._dropout[path] = module
        self._before = before
        self.units = [Unit(name, [name]) for name in chain.names]
        self.units[0].paths = [*before, *self.units[0].paths]
        self.units += [Unit(behind[0], behind)] if behind else []
        own = [name for module in self.containers for name, tensor in module._parameters.items() if tensor is not None]
        if own:
            raise NotImplementedError(f"{type(self.model).__name__} has the parameter {own[0]!r} beside its modules, which is in no stage; expected parameters "
                                      "of the blocks, and of modules before or behind them")

    def _beside_blocks(self, module, path, prefix, is_behind=False):
        """(path, module, whether it stands behind the blocks) of the modules beside the list of blocks, and beside those that it is in."""
        self.containers.add(module)
        for name, child in module._modules.items():
            if child is None:
                continue
            if name != path[0] or is_behind:
                yield f"{prefix}{name}", child, is_behind
                continue
            if path[1:]:
                yield from self._beside_blocks(child, path[1:], f"{prefix}{name}.")
            else:
                self.containers.add(child)
            is_behind = True

    def stage(self, begin, end):
        """The function of the units from `begin` to `end`."""
        count = len(self.chain.blocks)
        leading = {path: self.model.get_submodule(path) for path in self._before} | (self._dropout if begin else {})
        return BlockStage(self.chain, min(begin, count), min(end, count), end == len(self.units), leading)


def chain_of(model):
    """The chain of a model that is to be trained in stages."""
    for kind, trained in ((SequentialChain, TrainedSequential), (BlockChain, TrainedBlocks)):
        chain = kind.of(model)
        if chain is not None:
            return trained(chain)
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        raise NotImplementedError(f"{type(model).__name__} is an encoder-decoder model: blocks of its decoder take what the last block of its encoder gives, beside "
                                  "what the one before returned, and stages pass on the latter alone; expected a model with one list of blocks, or shards, split "
                                  "layers or split_by_program=True for this one")
    plan = '_pp_plan = {"layers": None}'
    raise NotImplementedError(f"{type(model).__name__} cannot be cut into stages: expected an nn.Sequential, a model of transformers with one list of blocks, "
                              f"a module with {plan}, the name of its nn.ModuleList or nn.Sequential of blocks, each of which gets what the one before "
                              "returned, or split_by_program=True for a program that has stages of its own")


def measured(chain, sample):
    """The seconds of each unit, with the inputs {"args", "named"} of a call."""
    if sample is None:
        raise ValueError("split='measured': there are no inputs to measure with; expected sample_inputs with the rows of a micro-batch on the first rank")
    return seconds(chain.model, [unit.name for unit in chain.units], sample["args"], sample["named"])


def begins_of(chain, split, stages, costs_of_first_rank):
    """The first unit of each stage: by costs, by the numbers of units, or by the names of those that begin stages behind the first one. Times are
    those that costs_of_first_rank() gives on all ranks."""
    names = [unit.name for unit in chain.units]
    if len(names) < stages:
        raise ValueError(f"{type(chain.model).__name__} has {len(names)} parts for {stages} stages; expected a part for each: {', '.join(names)}")
    if split == "measured":
        return balanced(costs_of_first_rank(), stages)
    if split in _COSTS:
        costs = [unit.cost(chain.model, split) for unit in chain.units]
        return balanced(costs if any(costs) else [unit.cost(chain.model, "parameters") for unit in chain.units], stages)
    given = [part.strip() for part in split.split(",")]
    if all(part.isdigit() for part in given) and len(given) == stages:
        begins = [sum(map(int, given[:place])) for place in range(stages)]
        if sum(map(int, given)) == len(names) and all(map(int, given)):
            return begins
    elif set(given) <= set(names) and len(given) == stages - 1:
        begins = [0, *map(names.index, given)]
        if begins == sorted(set(begins)):
            return begins
    raise ValueError(f"split={split!r} of {type(chain.model).__name__} into {stages} stages; expected 'flops', 'parameters', 'measured', {stages} numbers of parts "
                     f"with the sum {len(names)}, or {stages - 1} names of those that begin stages behind the first one, in their order: {', '.join(names[1:])}")


class Parts:
    """The parts of a cut chain in the engine, numbered over all units. Runs of units, which are the stages, are computed with their last part."""

    def __init__(self, chain, begins):
        self.paths = [path for unit in chain.units for path in unit.paths]
        self._chain, ends = chain, [*begins[1:], len(chain.units)]
        behind = [sum(len(unit.paths) for unit in chain.units[:end]) for end in ends]
        self.counts = [last - first for first, last in zip([0, *behind], behind)]  # of each run
        self._runs = {last - 1: run for last, run in zip(behind, zip(begins, ends))}

    def of_units(self):
        """The stages with each unit as a run of its own."""
        return Parts(self._chain, list(range(len(self._chain.units))))

    def is_end(self, part):
        """Whether it is the last one of its run."""
        return part in self._runs

    def run_of(self, part):
        """The units (begin, end) that are computed with a part."""
        return self._runs[part]
