# SPDX-License-Identifier: Apache-2.0
"""A model of torch in stages: what the engine calls for a stage, and what a step and an evaluation give it."""

import contextlib
import weakref
from collections.abc import Mapping

import torch

from .. import capi
from ..engine.bridge import not_traced, to_torch
from ..engine.values import engine_values, like, map_leaves
from ..parallel.collectives import agreed, from_rank
from ..parallel.parallelism_config import Mesh
from ..parallel.stages.trained_stages import Parts, begins_of, chain_of, measured
from ..tensors.tensor_type import is_tensor

_TWO_STAGES_A_RANK = ("interleaved", "zero_bubble_v")


def as_inputs(inputs):
    """The inputs of a model for the first stage: one, a list of them, or a map by their names."""
    if inputs is None:
        return None
    if isinstance(inputs, Mapping):
        return {"args": [], "named": dict(inputs)}
    return {"args": list(inputs) if isinstance(inputs, (list, tuple)) else [inputs], "named": {}}


def torch_values(value):
    """The tree with tensors of torch."""
    return map_leaves(value, is_tensor, to_torch)


class Stages:
    """The object that computes the stages of this rank. `output` is what the last one returned, as the model returns it; with `chosen` a function
    of that."""

    output = chosen = None

    @contextlib.contextmanager
    def step(self, chosen=None):
        """The computation of a batch: of the last stage's output goes on what `chosen` takes from it."""
        self.chosen = chosen
        try:
            yield
        finally:
            self.output = self.chosen = None

    def passed_on(self, output, is_last):
        """The output of a stage in the engine."""
        if is_last:
            output = self.output = output if self.chosen is None else self.chosen(output)
        return engine_values(output, "a stage has")

    def as_model(self, value):
        """The last stage's output, as the model returned it."""
        return torch_values(value) if self.output is None else like(self.output, value)


class OneStage(Stages):
    """A prepared model that one rank computes, as a call of it that the engine makes in a step."""

    def __init__(self, forward):
        self.forward = forward.forward

    def returned(self, inputs):
        given = torch_values(inputs[0])
        return self.passed_on(self.forward(*given["args"], **given["named"]), is_last=True)


class StagedModel(Stages):
    """A model of which each rank along the axis pp has some stages."""

    @classmethod
    def of(cls, model, state, options, sample=None):
        """The stages of a model that is about to be prepared, whose cut goes into the options; None: it is not cut. `sample` has the inputs of a call."""
        ranks = capi.accel_mesh_size(capi.accel_state_mesh(state), "pipeline")
        if ranks == 1 or options.split_by_program == 1 or options.evaluation_mode == 1:
            return None
        settings = options.pipeline
        if settings.schedule == "auto" and settings.stages_per_rank < 1:
            settings.stages_per_rank = 1  # how many stages there are is decided here
        each = settings.stages_per_rank if settings.stages_per_rank > 0 else 2 if settings.schedule in _TWO_STAGES_A_RANK else 1
        split = settings.split or "flops"
        chain = agreed(lambda: _chain_of(model, state, ranks),
                       lambda chain: [type(model).__name__, f"{ranks * each} stages", f"split={split!r}", *(f"the part {unit.name!r}" for unit in chain.units)])
        ranks_of = [stage % ranks for stage in range(ranks * each)]
        if settings.schedule == "zero_bubble_v":
            ranks_of[ranks:] = reversed(range(ranks))
        begins = begins_of(chain, split, ranks * each, lambda: from_rank(0, lambda: measured(chain, as_inputs(sample))))
        rank = capi.accel_mesh_coordinate(capi.accel_state_mesh(state), "pipeline")
        is_known = settings.schedule != "auto" or each == 1  # else the engine may put stages on other ranks
        staged = cls(chain, begins, ranks_of[-1], [stage for stage, of_rank in enumerate(ranks_of) if of_rank == rank or not is_known])
        settings.split = ",".join(map(str, staged.parts.counts))
        return staged

    def __init__(self, chain, begins, last_rank, own):
        self.chain, self.parts, self._functions = chain, Parts(chain, begins), {}
        self.last_rank = last_rank  # along the axis pp: with the last stage
        self.modules_elsewhere = _modules_elsewhere(chain, begins, own)
        self._recomputed, self._recomputing = frozenset(), None

    @property
    def containers(self):
        """The modules that are above those of the parts."""
        return self.chain.containers

    def attach(self, root):
        """The parts of the engine's model get their forwards."""
        own = weakref.ref(self)  # the engine holds the callbacks: no circle
        for number, path in enumerate(self.parts.paths):
            capi.accel_module_set_forward(capi.accel_module_child(root, path), lambda _, inputs, number=number: own()._run(number, inputs[0]))

    def recompute(self, groups, recomputing):
        """The forwards of some groups, "" for the whole model, are computed again in the backward: as the function that `recomputing` makes of them."""
        self._recomputed, self._recomputing = frozenset(groups), recomputing

    def _function(self, run):
        function = self.chain.stage(*run)
        paths = {path for unit in self.chain.units[slice(*run)] for path in unit.paths}
        return self._recomputing(function) if "" in self._recomputed or paths & self._recomputed else function

    def compute_in_groups(self, groups):
        """Parameters of some modules are gathered around their call in the engine: what stays together is computed with its last part."""
        of_parts = [path for path in groups if path in self.parts.paths]
        if not of_parts:
            return
        self.parts = self.parts.of_units()
        wrong = [path for path in of_parts if not self.parts.is_end(self.parts.paths.index(path))]
        if wrong:
            raise NotImplementedError(f"{wrong[0]} is sharded by itself, and is computed with the block behind it; expected an auto_wrap_policy of blocks, or "
                                      "NO_WRAP")

    def with_classes(self, value):
        """A gathered output as the model returned it, on all ranks of the pipeline: the last one tells its classes."""
        if is_tensor(value):
            return to_torch(value)
        with Mesh().get_group("pp"):
            kinds = from_rank(self.last_rank, lambda: map_leaves(self.output, torch.is_tensor, lambda _: torch.empty(0)))
        return like(kinds if self.output is None else self.output, value)

    @not_traced
    def _run(self, part, value):
        """The last part of a run computes all of it; those before it hand on its input."""
        if not self.parts.is_end(part):
            return value
        run = self.parts.run_of(part)
        if run not in self._functions:
            self._functions[run] = self._function(run)
        return self.passed_on(self._functions[run](torch_values(value)), is_last=part == len(self.parts.paths) - 1)


def _chain_of(model, state, ranks):
    shared = capi.accel_mesh_size(capi.accel_state_mesh(state), "context")
    if shared > 1:  # positions are given to the model's call, and stages call its forward
        raise NotImplementedError(f"pp_size={ranks} and cp_size={shared}: models of torch in stages have whole sequences; expected one of both, "
                                  "or a model of accel")
    return chain_of(model)


def _modules_elsewhere(chain, begins, own):
    """The modules that stages of other ranks have, and none of this rank's."""
    found = {True: set(), False: set()}
    for stage, run in enumerate(zip(begins, [*begins[1:], len(chain.units)])):
        for unit in chain.units[slice(*run)]:
            for path in unit.paths:
                found[stage in own].update(chain.model.get_submodule(path).modules())
    return found[False] - found[True]


def scores_of(output):
    """The logits of a model's output."""
    return _member(output, "logits", "logits: a tensor, or an output that has them")


def loss_of(output):
    """The loss that a model returns."""
    return _member(output, "loss", "the loss: a tensor, or an output with one, and labels in the inputs")


def _member(output, name, expected):
    if isinstance(output, torch.Tensor):
        return output
    found = output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)
    if not isinstance(found, torch.Tensor):
        which = "" if found is None else f" whose {name} is a {type(found).__name__}"
        raise TypeError(f"the model returned a {type(output).__name__}{which}; expected {expected}")
    return found
