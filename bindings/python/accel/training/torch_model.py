"""A torch.nn.Module in the engine: its parameters and buffers are the module's own tensors, its forward is Python's.

A call of a prepared model goes through the engine, which puts the precision, the exchange of gradients and the kernels of the job around
the module's forward. Arguments stay in Python; the tensors of the result pass through the engine.
"""

import contextlib
import functools
import logging
import threading
import types
import weakref

import torch
from torch.nn.modules import module as torch_module
from torch.utils.checkpoint import checkpoint

from .. import capi
from ..big_models import meta_parameters
from ..engine import errors
from ..engine.bridge import from_torch, not_traced, to_torch
from ..engine.objects import inside
from ..engine.scopes import noting, scope
from ..engine.values import map_leaves
from ..parallel.deepspeed import selected_of
from ..state.process import current, sharded_by
from . import sparse_gradients, uncovered_gradients


_logger = logging.getLogger(__name__)


class _Part:
    """A module of torch in the engine."""

    def __init__(self, module):
        self.handle = capi.accel_module_create(type(module).__name__)
        self.is_shared = False  # whether ranks exchange its gradients


_parts: "weakref.WeakKeyDictionary[torch.nn.Module, _Part]" = weakref.WeakKeyDictionary()


def mirror(module: torch.nn.Module, mirrored: "dict | None" = None):
    """The engine's module with the parameters, buffers and children of one of torch, themselves and not copies. `mirrored`: the parts that
    are made already, by their modules."""
    mirrored = {} if mirrored is None else mirrored
    if module in mirrored:  # used at several places
        return mirrored[module].handle
    part = mirrored[module] = _Part(module)
    for name, parameter in module._parameters.items():
        if parameter is not None:
            capi.accel_module_add_parameter(part.handle, name, from_torch(parameter), int(parameter.requires_grad))
    for name, buffer in module._buffers.items():
        if buffer is not None:
            _add_buffer(part, module, name, buffer)
    for name, child in module._modules.items():
        if child is not None:
            capi.accel_module_add_child(part.handle, name, mirror(child, mirrored))
    return part.handle


def _add_buffer(part, module, name, buffer):
    capi.accel_module_add_buffer(part.handle, name, from_torch(buffer), int(name not in module._non_persistent_buffers_set))


def _follow_parameter(module, name, parameter):
    """Torch calls this when a module gets a parameter: that of a prepared model is replaced in the engine, too."""
    part = _parts.get(module)
    if part is None or parameter is None or parameter is module._parameters.get(name):
        return
    if part.is_shared:
        raise RuntimeError(f"the parameter {name!r} of a {type(module).__name__} is set after prepare(), when the ranks exchange the gradients of "
                           "the former one; change the model before prepare(), or prepare it again")
    if module._parameters.get(name) is None:
        capi.accel_module_add_parameter(part.handle, name, from_torch(parameter), int(parameter.requires_grad))
    else:
        capi.accel_module_replace_tensor(part.handle, name, from_torch(parameter))


def _follow_buffer(module, name, buffer):
    part = _parts.get(module)
    if part is None or buffer is None or buffer is module._buffers.get(name):
        return
    try:
        capi.accel_module_replace_tensor(part.handle, name, from_torch(buffer))
    except errors.NotFoundError:
        _add_buffer(part, module, name, buffer)


torch_module.register_module_parameter_registration_hook(_follow_parameter)
torch_module.register_module_buffer_registration_hook(_follow_buffer)


class _Call:
    """A call of a model under way."""

    def __init__(self, forward, args, kwargs):
        self.forward, self.args, self.kwargs, self.output = forward, args, kwargs, None


class _Calls(threading.local):
    """The calls that this thread is in, the innermost last."""

    def __init__(self):
        self.open = []


_calls = _Calls()


@not_traced
def _run_forward(_handle, _inputs):
    """The forward of every mirrored module. It belongs to no model, so that the engine keeps none of Python's alive."""
    call = _calls.open[-1]
    call.output = output = call.forward(*call.args, **call.kwargs)
    if isinstance(output, torch.Tensor):
        return from_torch(output)
    tensors = []
    map_leaves(output, _is_tensor, tensors.append)
    return [from_torch(tensor) for tensor in tensors]


def _is_tensor(value):
    return isinstance(value, torch.Tensor)


@not_traced
def _with_tensors(output, tensors):
    """The output with the tensors that the engine returned; itself when they are those that it had."""
    if isinstance(output, torch.Tensor):
        return to_torch(tensors)
    returned = [to_torch(tensor) for tensor in tensors]
    former = []
    map_leaves(output, _is_tensor, former.append)
    if all(new is old for new, old in zip(returned, former)):
        return output
    rest = iter(returned)
    return map_leaves(output, _is_tensor, lambda _: next(rest))


class PreparedForward:
    """The forward of a prepared model. `handle` is the engine's prepared module, `forward` what it runs, `model` the module of torch."""

    def __init__(self, handle, model, forward):
        self.handle, self.model, self.forward = handle, model, forward

    @not_traced
    def __call__(self, *args, **kwargs):
        call = _Call(self.forward, args, kwargs)
        self._follow_mode()
        self.runs += torch.is_grad_enabled()
        _calls.open.append(call)
        try:
            tensors = capi.accel_module_call(self.handle, ())
        finally:
            _calls.open.pop()
        output = _with_tensors(call.output, tensors)
        if self.sparse is not None and torch.is_grad_enabled():
            self.sparse.after_forward(output)
        return output

    def _follow_mode(self):
        if self.training != self.model.training:
            self.training = self.model.training
            capi.accel_module_train(self.handle, int(self.training))

    training = None
    runs = 0  # with gradients
    sparse = None  # the exchange of sparse gradients

    def __reduce__(self):
        """A copy of the model belongs to no job: its forward is that of its class, or that of its hooks."""
        return (inside, (self.forward,)) if isinstance(self.forward, functools.partial) else (_own_forward, (self.model,))


class UnwrappedForward:
    """The forward of the model inside a DistributedModel: under the precision, as it is where there is one rank, and without an exchange. Inside
    of the prepared forward it is the model's own."""

    def __init__(self, handle, model):
        self.alone = PreparedForward(handle, model, model.forward)

    @not_traced
    def __call__(self, *args, **kwargs):
        model = self.alone.model
        if any(call.forward is model for call in _calls.open):
            return self.alone.forward(*args, **kwargs)
        return self.alone(*args, **kwargs)

    def __reduce__(self):
        return self.alone.__reduce__()


def _own_forward(model):
    return types.MethodType(type(model).forward, model)


class DistributedModel(torch.nn.Module):
    """A model that is trained by several ranks. `module` is the model inside, whose attributes it has."""

    def __init__(self, module):
        super().__init__()
        self.module = module
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
            return getattr(self.module, name)

    def no_sync(self):
        """Gradients are not exchanged inside, as of torch's DistributedDataParallel."""
        return noting(self, "held", scope(capi.accel_no_sync_begin, current(), self.forward.handle))

    def __reduce__(self):
        """A copy is that of the model inside: it belongs to no job."""
        return inside, (self.module,)


def prepare(model: torch.nn.Module, state, options, wraps: bool):
    """The prepared model: with `wraps` a DistributedModel, else the model itself."""
    if isinstance(vars(model).get("forward"), UnwrappedForward):  # of an earlier Accelerator
        del model.forward
    plugin, deepspeed = sharded_by()
    gets_weights = wraps and capi.accel_process_index(state) != 0
    if deepspeed is None or not gets_weights or not selected_of(deepspeed).zero3_init_flag:
        meta_parameters.initialize(model, plugin, plugin is not None and gets_weights)
    if plugin is not None and wraps and capi.accel_mixed_precision(state) != capi.ACCEL_PRECISION_NO:
        _widen_parameters(model)
    parts: dict = {}
    sparse = sparse_gradients.sparse_parameters_of(model) if wraps else {}
    with sparse_gradients.hidden(sparse.values()):
        is_dense = any(parameter.requires_grad for parameter in model.parameters())
        inner = mirror(model, parts)
        capi.accel_module_set_forward(inner, _run_forward)
        capi.accel_module_train(inner, int(model.training))
        handle = capi.accel_prepare_model(state, inner, options)
    for module, part in parts.items():
        part.is_shared = wraps
        _parts[module] = part
    forward = model if wraps else model.forward
    groups = [sharded["module"] for sharded in capi.accel_sharded_modules(handle)]
    if groups and sparse:
        raise ValueError(f"{', '.join(sparse)}: embeddings with sparse=True have no gradients that could be sharded; expected sparse=False, or a "
                         "strategy that does not shard")
    checkpointed = _innermost(groups) if plugin is not None and plugin.checkpoints_activations_of(model) else ()
    for path in filter(None, groups):
        module = model.get_submodule(path)
        _call_through_engine(module, parts[module].handle, _checkpointed(module.forward, plugin) if path in checkpointed else module.forward)
    if "" in checkpointed:
        forward = _checkpointed(forward, plugin)
    if wraps:
        prepared = DistributedModel(model)
        prepared.forward = PreparedForward(handle, prepared, forward)
        if not groups:  # what is sharded has no gradients but those that were exchanged
            uncovered_gradients.watch(prepared.forward)
            if sparse:
                prepared.forward.sparse = sparse_gradients.SparseGradients(handle, sparse)
                if not is_dense:
                    sparse_gradients.share_from_rank_0(model)
            if capi.accel_mixed_precision(state) != capi.ACCEL_PRECISION_NO:
                model.forward = UnwrappedForward(capi.accel_unwrap_model(state, handle, 1), model)
    else:
        prepared = model
        prepared.forward = PreparedForward(handle, model, forward)
    prepared._is_accelerate_prepared = True
    return prepared


def _widen_parameters(model):
    """Shards that are trained under mixed precision are of float32; what is gathered from them has the lower type."""
    low = {name: one for name, one in model.named_parameters() if one.requires_grad and one.is_floating_point() and one.element_size() < 4}
    for parameter in low.values():
        parameter.data = parameter.data.to(torch.float32)
    if low:
        _logger.warning("%d trained parameters of %s become float32, because mixed_precision is on: %s%s; checkpoints have them so", len(low),
                        type(model).__name__, ", ".join(list(low)[:3]), ", ..." if len(low) > 3 else "")


def _innermost(groups):
    """The modules of groups that have no group inside, by their paths."""
    return [path for path in groups if not any(other != path and other.startswith(f"{path}." if path else "") for other in groups)]


def _checkpointed(forward, plugin):
    """A forward that keeps its inputs, and is computed again in the backward of its group, when the parameters are whole."""
    def run(*args, **kwargs):
        kept_on_host = torch.autograd.graph.save_on_cpu() if plugin.activation_checkpointing_offload else contextlib.nullcontext()
        with kept_on_host:
            return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    return run


def _call_through_engine(module, handle, forward):
    """Torch calls the module inside a sharded model; its parameters are gathered around its forward by the engine's module."""
    capi.accel_module_set_forward(handle, _run_forward)
    module.forward = PreparedForward(handle, module, forward)


def sharded_state_dict(model, state) -> "dict | None":
    """The whole tensors of a sharded model on the main process, and nothing on the others; None for a model that is not sharded."""
    forward = forward_of(model)
    if forward is None or not capi.accel_sharded_modules(forward.handle):
        return None
    return {name: to_torch(tensor) for name, tensor in capi.accel_get_state_dict(state, forward.handle).items()}


def forward_of(model) -> "PreparedForward | None":
    """The forward of a prepared model; None for a model that is not prepared."""
    forward = vars(model).get("forward") if isinstance(model, torch.nn.Module) else None
    return forward if isinstance(forward, PreparedForward) else None


def restore_forward(model):
    """Gives a prepared model the forward back that it had before."""
    for module in model.modules():
        if forward_of(module) is not None or isinstance(vars(module).get("forward"), UnwrappedForward):
            del module.forward


# What only wraps a model: prepared ones, and torch's own for data parallelism.
WRAPPERS = (DistributedModel, torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)
