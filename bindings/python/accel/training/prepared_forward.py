# SPDX-License-Identifier: Apache-2.0
"""The forward of a prepared model of torch, which goes through the engine and back. Arguments stay in Python."""

import contextlib
import functools
import threading
import types

import torch

from .. import capi
from ..engine.bridge import from_torch, not_traced, to_torch
from ..engine.objects import inside
from ..engine.scopes import noting, scope
from ..engine.values import engine_values, map_leaves
from ..parallel import split_sequences, torch_sequences
from ..state.job import current
from . import ddp_attributes


class _Call:
    """A call of a model under way."""

    def __init__(self, forward, args, kwargs):
        self.forward, self.args, self.kwargs, self.output = forward, args, kwargs, None

    @not_traced
    def run(self):
        if not split_sequences.are_split():
            return self.forward(*self.args, **self.kwargs)
        try:
            return self.forward(*self.args, **self.kwargs)
        except RuntimeError as error:
            raise torch_sequences.at_layer(error)

    @not_traced
    def returned(self, _inputs):
        """The engine's part of the output: its tensors."""
        self.output = output = self.run()
        if isinstance(output, torch.Tensor):
            return from_torch(output)
        tensors = []
        map_leaves(output, _is_tensor, tensors.append)
        return [from_torch(tensor) for tensor in tensors]


class _Calls(threading.local):
    """The calls that this thread is in, the innermost last."""

    def __init__(self):
        self.open = []


_calls = _Calls()


@contextlib.contextmanager
def within(call):
    """The engine calls a model, whose forward is that of `call`."""
    _calls.open.append(call)
    try:
        yield
    finally:
        _calls.open.pop()


@not_traced
def run_forward(_handle, inputs):
    """The forward of every mirrored module. It belongs to no model, so that the engine keeps none of Python's alive."""
    return _calls.open[-1].returned(inputs)


def _is_tensor(value):
    return isinstance(value, torch.Tensor)


@not_traced
def _with_tensors(output, tensors):
    """The output with the tensors that the engine returned; itself when they are those that it had."""
    if isinstance(output, torch.Tensor):
        return to_torch(tensors, output)
    former = []
    map_leaves(output, _is_tensor, former.append)
    returned = [to_torch(tensor, old) for tensor, old in zip(tensors, former)]
    if all(new is old for new, old in zip(returned, former)):
        return output
    rest = iter(returned)
    return map_leaves(output, _is_tensor, lambda _: next(rest))


class PreparedForward:
    """The forward of a prepared model. `handle` is the engine's prepared module, `forward` what it runs, `model` the module of torch."""

    is_split = False  # whether ranks have parts of the model's layers
    inputs_are_split = False  # whether each call gets this rank's part of sequences
    stages = None  # of a model in stages

    def __init__(self, handle, model, forward):
        self.handle, self.model, self.forward = handle, model, forward

    @not_traced
    def __call__(self, *args, **kwargs):
        if self.inputs_are_split and not split_sequences.are_split():
            with split_sequences.noted():
                return self(*args, **kwargs)
        call = _Call(self.forward, args, kwargs)
        self.follow_mode()
        _calls.open.append(call)
        try:
            tensors = capi.accel_module_call(self.handle, ())
        finally:
            _calls.open.pop()
        output = _with_tensors(call.output, tensors)
        if self.sparse is not None and torch.is_grad_enabled():
            self.sparse.after_forward(output)
        return output

    def follow_mode(self):
        if self.training != self.model.training:
            self.training = self.model.training
            capi.accel_module_train(self.handle, int(self.training))

    training = None
    sparse = None  # the exchange of sparse gradients

    def __reduce__(self):
        """A copy of the model belongs to no job: its forward is that of its class, or that of its hooks."""
        return (inside, (self.forward,)) if isinstance(self.forward, functools.partial) else (_own_forward, (self.model,))


class StagedForward(PreparedForward):
    """The forward of a prepared model in stages, in evaluation: the rank with the first stage gives the inputs, that with the last one gets the output, and
    with gather_output all. In training there are steps only."""

    is_split = True

    def __init__(self, handle, model, stages, gathers):
        super().__init__(handle, model, model)
        self.stages, self.gathers = stages, gathers

    @not_traced
    def __call__(self, *args, **kwargs):
        self.follow_mode()
        given = [engine_values({"args": list(args), "named": kwargs}, "the inputs have")] if args or kwargs else ()
        with self.stages.step():
            value = capi.accel_module_call(self.handle, given)
            if self.gathers:
                return self.stages.with_classes(value)
            return None if value is None else self.stages.as_model(value)

    def __reduce__(self):
        raise TypeError("a model in stages has those of this rank and cannot be copied; accelerator.get_state_dict() collects its weights")


class UnwrappedForward:
    """The forward of the model inside a DistributedModel: under the precision, as it is where there is one rank, and without an exchange. Inside
    of the prepared forward it is the model's own."""

    def __init__(self, handle, model):
        self.alone = PreparedForward(handle, model, model.forward)

    @not_traced
    def __call__(self, *args, **kwargs):
        model = self.alone.model
        if any(call.forward is model or getattr(call.forward, "_orig_mod", None) is model for call in _calls.open):
            return self.alone.forward(*args, **kwargs)
        return self.alone(*args, **kwargs)

    def __reduce__(self):
        return self.alone.__reduce__()


def _own_forward(model):
    return types.MethodType(type(model).forward, model)


class DistributedModel(torch.nn.Module):
    """A model that is trained by several ranks. `module` is the model inside, whose attributes it has; what the model lacks is as of torch's
    DistributedDataParallel. `exchange` has the settings of the exchange of gradients, a DistributedDataParallelKwargs."""

    is_around_model = True  # is_compiled_module() and the like look inside

    def __init__(self, module, exchange):
        super().__init__()
        self.module, self.exchange = module, exchange
        self.training = module.training

    def forward(self, *args, **kwargs):
        """The model's own forward; a prepared model has another one, which exchanges gradients."""
        return self.module(*args, **kwargs)

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "module":
                raise
            if name in ddp_attributes.NAMES and not hasattr(self.module, name):
                return ddp_attributes.value(self, name)
            return getattr(self.module, name)

    def __dir__(self):
        return {*super().__dir__(), *ddp_attributes.NAMES}

    def no_sync(self):
        """Gradients are not exchanged inside, as of torch's DistributedDataParallel."""
        return noting(self, "held", scope(capi.accel_no_sync_begin, current(), self.forward.handle))

    @property
    def require_backward_grad_sync(self):
        """Whether a backward exchanges gradients outside of no_sync(), which is always so."""
        return True

    @require_backward_grad_sync.setter
    def require_backward_grad_sync(self, wanted):
        if not wanted:
            raise NotImplementedError("require_backward_grad_sync=False: expected `with model.no_sync():`, or accelerator.accumulate(model)")

    def join(self, divide_by_initial_world_size=True, enable=True, throw_on_early_termination=False):
        """The ranks may have different numbers of batches inside, as of torch's DistributedDataParallel."""
        if not divide_by_initial_world_size or throw_on_early_termination:
            raise NotImplementedError("join(): gradients are divided by all ranks, and ranks that have ended wait for the others; expected "
                                      "divide_by_initial_world_size=True and throw_on_early_termination=False")
        if not enable:
            return contextlib.nullcontext()
        return scope(capi.accel_join_uneven_inputs_begin, current(), [self.forward.handle], capi.ACCEL_UNSET)

    def __reduce__(self):
        """A copy is that of the model inside: it belongs to no job."""
        return inside, (self.module,)


class EngineModel(torch.nn.Module):
    """A prepared model, `module`, in an engine that does the whole of a step in a call."""

    def __init__(self, module):
        super().__init__()
        self.module = module
        self.training = module.training


def forward_of(model) -> "PreparedForward | None":
    """The forward of a prepared model; None for a model that is not prepared."""
    model = model.module if isinstance(model, EngineModel) else model
    if not isinstance(model, torch.nn.Module):
        return None
    forward = vars(model).get("forward")
    if isinstance(forward, PreparedForward):
        return forward
    return forward_of(model._orig_mod) if _is_compiled(model) else None


def _is_compiled(module):
    return "dynamo_ctx" in vars(module)


def restore_forward(model):
    """Gives a prepared model the forward back that it had before."""
    for module in model.modules():
        if isinstance(vars(module).get("forward"), (PreparedForward, UnwrappedForward)):
            drop_forward(module)


def drop_forward(module):
    """Takes a forward away that prepare() has set."""
    del module.forward
    if _is_compiled(module):
        module._initialize()  # else it would have none


# What only wraps a model: prepared ones, and torch's own for data parallelism.
WRAPPERS = (DistributedModel, EngineModel, torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)
