# SPDX-License-Identifier: Apache-2.0
"""Steps of Megatron-LM's models whose stages are on several ranks: the step of a micro-batch is taken apart, before and behind the model."""

import inspect

from ..engine.values import map_leaves
from ..parallel import collectives
from ..parallel.parallelism_config import Mesh
from .arguments import get_args
from .calls import as_megatron

_AXIS = "pipeline"


class _Called(BaseException):
    """Leaves a step where it calls the model."""

    def __init__(self, args, named):
        self.args, self.named = args, named


class _Model:
    """Stands for the model in a step; with an output it returns that."""

    def __init__(self, model, output=None):
        self.model, self.output = model, output

    def __call__(self, *args, **named):
        if self.output is None:
            raise _Called(args, named)
        return self.output

    def parameters(self):
        return self.model.parameters()

    def __getattr__(self, name):
        return getattr(self.model, name)


class StagedSteps:
    """The steps of an engine whose model is in stages. The rank with the last one computes the losses, and tells the others the values."""

    def __init__(self, engine):
        self.engine, self._mesh = engine, Mesh()
        self._last = self._mesh.size(_AXIS) - 1
        self._has_last = self._mesh.get_local_rank(_AXIS) == self._last

    def train(self, batch, micro_batches):
        """Forwards and backwards of a batch, whose micro-batches are known. The values by name."""
        engine, results, parts = self.engine, [], []
        rows, weight = len(next(iter(batch.values()))), engine.weight_of_items(micro_batches)

        def loss_of(output, micro_batch):
            share = len(next(iter(micro_batch.values()))) / rows  # of the rows, by which the step weighs a loss
            result = self._result(micro_batch, output)
            results.append(map_leaves(result, lambda value: hasattr(value, "detach"), lambda value: value.detach()))
            parts.append((micro_batch, share))
            if len(result) == 3 and weight is None:
                raise NotImplementedError("pp_degree above 1: the loss function of the program returns a sum and its count, which ranks have to know before "
                                          "the step; expected the mean of a micro-batch")
            return result[0] * (weight / share) if len(result) == 3 else result[0]

        engine.accelerator.pipeline_step(engine.module, self._inputs(batch), batch, loss_of)
        return self._shared(results, parts)

    def evaluate(self, micro_batches):
        """Forwards alone. The values by name. Behind an error of the loss the forwards go on, in which the other ranks take part."""
        results, failure = [], None
        for micro_batch, _ in micro_batches:
            output = self.engine.module(**self._inputs(micro_batch))
            if self._has_last and failure is None:
                try:
                    results.append(self._result(micro_batch, output))
                except Exception as error:
                    failure = error
        return self._shared(results, micro_batches, failure)

    def _called(self, micro_batch, output=None):
        model = as_megatron(_Model(self.engine.module, output), get_args())
        return self.engine.train_step_handler.forward_step(iter([micro_batch]), model)

    def _inputs(self, batch):
        """The arguments of the step's call of the model, by name."""
        try:
            self._called(batch)
        except _Called as call:
            names = inspect.signature(self.engine.accelerator.unwrap_model(self.engine.module).forward).parameters
            return {**dict(zip(names, call.args)), **call.named}
        raise NotImplementedError(f"pp_degree above 1: {type(self.engine.train_step_handler).__name__}.forward_step() does not call the model that it gets; "
                                  "expected one call, model(...)")

    def _result(self, micro_batch, output):
        """The result of the step's loss function for an output of the model."""
        returned, loss_of = self._called(micro_batch, output)
        return loss_of(returned)

    def _shared(self, results, parts, failure=None):
        """The values of the last rank on all of them; its error is one of all."""
        values = None
        if self._has_last and failure is None:
            try:
                values = self.engine.values_of(results, parts)
            except Exception as error:
                failure = error

        def known():
            if failure is not None:
                raise failure
            return values

        with self._mesh.get_group(_AXIS):
            return collectives.from_rank(self._last, known)
