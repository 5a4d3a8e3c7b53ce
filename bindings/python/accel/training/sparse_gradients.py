# SPDX-License-Identifier: Apache-2.0
"""Sparse gradients of models that several ranks train: those of embeddings with `sparse=True`. Their indices and values are exchanged at the end of
the backward; the engine, which exchanges dense memory, does not know that these parameters are trained."""

import contextlib
import weakref

import torch
from torch.autograd import Variable

from .. import capi
from ..engine.values import map_leaves
from ..parallel import collectives
from ..state.job import current
from ..state.process import GradientState


def sparse_parameters_of(model):
    """The trained parameters whose gradients are sparse, by their names."""
    owners = [(path, module) for path, module in model.named_modules()
              if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and module.sparse and module.weight.requires_grad]
    found: dict = {}
    for path, module in owners:
        if not any(module.weight is other for other in found.values()):  # a tied one
            found[f"{path}.weight" if path else "weight"] = module.weight
    return found


@contextlib.contextmanager
def hidden(parameters):
    """Inside, these parameters are not trained."""
    try:
        for parameter in parameters:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)


def share_from_rank_0(model):
    """All ranks get rank 0's weights, which the engine shares only of a model that has dense gradients."""
    for tensor in (*model.parameters(), *model.buffers()):
        collectives.broadcast(tensor.detach())


_exchanges: "weakref.WeakSet[SparseGradients]" = weakref.WeakSet()


def refuse_uneven_inputs(handles):
    """Ranks without inputs follow the engine's exchanges only."""
    for exchange in _exchanges:
        if any(handle is exchange.handle for handle in handles):
            raise ValueError(f"{', '.join(map(repr, exchange.parameters))}: sparse gradients cannot be exchanged with ranks that have no inputs any more; "
                             "expected even inputs, or sparse=False")


class SparseGradients:
    """The exchange of one prepared model, which is `handle` in the engine. `parameters` have names."""

    def __init__(self, handle, parameters):
        self.handle, self.parameters = handle, parameters
        _exchanges.add(self)
        self.held = self.triggered = 0  # scopes of no_sync() and trigger_sync_in_backward() that are open
        self.expected = False  # whether the backward of the latest forward exchanges
        self.is_queued = False
        reference = weakref.ref(self)
        hooks = [parameter.register_post_accumulate_grad_hook(lambda _: reference()._queue()) for parameter in parameters.values()]
        weakref.finalize(self, _remove, hooks)

    def after_forward(self, output):
        """All ranks exchange at the end of a backward that passes the output, also those where it reaches no parameter."""
        settings = GradientState()
        self.expected = self.held == 0 and (settings.sync_gradients or settings.sync_each_batch)
        map_leaves(output, lambda leaf: isinstance(leaf, torch.Tensor) and leaf.requires_grad, lambda tensor: tensor.register_hook(lambda _: self._queue()))

    def _queue(self):
        if (self.expected or self.triggered > 0) and not self.is_queued:
            self.is_queued = True
            Variable._execution_engine.queue_callback(self._exchange)

    def _exchange(self):
        self.is_queued = False
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                _average(name, parameter)


def _remove(hooks):
    for hook in hooks:
        hook.remove()


def _average(name, parameter):
    gradient = parameter.grad
    if gradient is not None and not gradient.is_sparse:
        raise RuntimeError(f"the gradient of {name!r} is dense, and its embedding has sparse=True; expected a weight that nothing else uses, or "
                           "sparse=False")
    if gradient is None:
        indices, values = parameter.new_empty((0,), dtype=torch.int64), parameter.new_empty((0, *parameter.shape[1:]))
    else:
        gradient = gradient.coalesce()
        indices, values = gradient.indices()[0], gradient.values()
    indices, values = collectives.gather_uneven([indices, values])
    if gradient is None and len(indices) == 0:
        return
    values = values / capi.accel_num_processes(current())
    parameter.grad = torch.sparse_coo_tensor(indices[None], values, parameter.shape, check_invariants=False).coalesce()
