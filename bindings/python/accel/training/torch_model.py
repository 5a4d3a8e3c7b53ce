# SPDX-License-Identifier: Apache-2.0
"""A torch.nn.Module in the engine: its parameters and buffers are the module's own tensors, its forward is Python's.

A call of a prepared model goes through the engine, which puts the precision, the exchange of gradients and the kernels of the job around
the module's forward. Arguments stay in Python; the tensors of the result pass through the engine.
"""

import contextlib
import functools
import logging

import torch
from torch.utils.checkpoint import checkpoint

from .. import capi
from ..big_models import checkpoint_loading, meta_parameters
from ..engine.bridge import to_torch
from ..megatron.groups import on_main_process
from ..parallel import shared_experts, split_layers, split_sequences, torch_sequences
from ..parallel.collectives import agreed
from ..parallel.deepspeed import selected_of
from ..state.job import Job, sharded_by
from . import sparse_gradients
from .compilation import without_compilation
from .compiled_forward import Compilation
from .mirrored_module import followed, mirror
from .prepared_forward import DistributedModel, PreparedForward, StagedForward, UnwrappedForward, drop_forward, forward_of, run_forward
from .staged_model import StagedModel


_logger = logging.getLogger(__name__)


def prepare(model: torch.nn.Module, state, options, exchange, param_init_fn=None, sample=None, checkpoint=None):
    """The prepared model: a DistributedModel that exchanges gradients as these settings say, and without them the model itself. A model on the
    device meta gets its values from the files of a `checkpoint` and from `param_init_fn`, of stages those of this rank alone. `sample` are inputs of a call,
    with which the parts of stages are measured."""
    wraps = exchange is not None
    if isinstance(vars(model).get("forward"), UnwrappedForward):  # of an earlier Accelerator
        drop_forward(model)
    plugin, deepspeed = sharded_by()
    compilation = Compilation(model, Job.dynamo_plugin, in_place=bool(deepspeed or Job.megatron_lm_plugin))
    gets_weights = wraps and capi.accel_process_index(state) != 0
    sparse = sparse_gradients.sparse_parameters_of(model) if wraps else {}
    with sparse_gradients.hidden(sparse.values()):
        stages = StagedModel.of(model, state, options, sample)
    if stages is not None:
        compilation.leave("the stages")
    parts: dict = {}

    def mirrored():
        """The engine's module, the experts and the layers that ranks share, and whether other parameters than sparse ones are trained."""
        if checkpoint is not None:
            checkpoint_loading.load_modules(model, checkpoint, frozenset() if stages is None else stages.modules_elsewhere)
        if deepspeed is None or not gets_weights or not selected_of(deepspeed).zero3_init_flag:
            meta_parameters.initialize(model, plugin, plugin is not None and gets_weights, param_init_fn, () if stages is None else stages.modules_elsewhere)
        if plugin is not None and wraps and capi.accel_mixed_precision(state) != capi.ACCEL_PRECISION_NO:
            _widen_parameters(model)
        with sparse_gradients.hidden(sparse.values()):
            is_dense = any(parameter.requires_grad for parameter in model.parameters())
            inner = mirror(model, parts, () if stages is None else stages.containers)
            if stages is None:
                capi.accel_module_set_forward(inner, run_forward)
            else:
                stages.attach(inner)
            capi.accel_module_train(inner, int(model.training))
            if options.split_by_program != 1 and split_sequences.ranks_of(state) > 1:
                torch_sequences.add_hooks(model, state)
            experts = shared_experts.prepare(model, state, options)
            split = split_layers.prepare(model, state, options, experts)
            if split is not None or experts is not None or split_sequences.ranks_of(state) > 1:
                compilation.leave("layers and sequences that ranks share")
        if experts is not None:
            options.tensor_parallel.plan = experts.plan_with(options.tensor_parallel.plan or "auto")
        return inner, experts, split, is_dense

    inner, experts, split, is_dense = mirrored() if stages is None else agreed(mirrored)
    with sparse_gradients.hidden(sparse.values()):
        handle = capi.accel_prepare_model(state, inner, options)
        for parts_of_ranks in filter(None, (split, experts)):
            parts_of_ranks.add_hooks()
    for module, part in parts.items():
        part.is_shared = wraps
        followed[module] = part
    groups = [sharded["module"] for sharded in capi.accel_sharded_modules(handle)]
    if groups and sparse:
        raise ValueError(f"{', '.join(sparse)}: embeddings with sparse=True have no gradients that could be sharded; expected sparse=False, or a "
                         "strategy that does not shard")
    checkpointed = _innermost(groups) if plugin is not None and plugin.checkpoints_activations_of(model) else ()
    if stages is not None:
        stages.compute_in_groups(groups)
        stages.recompute(checkpointed, functools.partial(_checkpointed, plugin=plugin))
    gathered = {path: model.get_submodule(path) for path in groups if path and (stages is None or path not in stages.parts.paths)}
    visible, forward = compilation.apply(list(gathered.values()), wraps)
    for path, module in gathered.items():
        own = compilation.of_group(module)
        _call_through_engine(module, parts[module].handle, _checkpointed(own, plugin) if path in checkpointed else own)
    if "" in checkpointed:
        forward = _checkpointed(forward, plugin)
    if wraps:
        prepared = DistributedModel(visible, exchange)
        prepared.forward = (PreparedForward(handle, prepared, forward) if stages is None else
                            StagedForward(handle, prepared, stages, options.pipeline.gather_output == 1))
        if not groups and stages is None:
            if sparse:
                prepared.forward.sparse = sparse_gradients.SparseGradients(handle, sparse)
                if not is_dense:
                    sparse_gradients.share_from_rank_0(model)
            if capi.accel_mixed_precision(state) != capi.ACCEL_PRECISION_NO:
                visible.forward = UnwrappedForward(capi.accel_unwrap_model(state, handle, None), visible)
    else:
        prepared = visible
        prepared.forward = PreparedForward(handle, visible, forward)
    prepared.forward.is_split = split is not None or experts is not None or stages is not None
    prepared.forward.inputs_are_split = options.context_parallel.inputs_are_split == 1
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
            return checkpoint(split_sequences.following(forward), *args, use_reentrant=False, **kwargs)

    return run


def _call_through_engine(module, handle, forward):
    """Torch calls the module inside a sharded model; its parameters are gathered around its forward by the engine's module."""
    capi.accel_module_set_forward(handle, run_forward)
    module.forward = PreparedForward(handle, module, forward)


def sharded_state_dict(model, prepared, state) -> "dict | None":
    """The whole tensors of a model of which ranks have parts, or of a module inside of one of the `prepared`, on the main process, and nothing on the others; None
    for a model that is whole on each rank."""
    model, path = _around(model, prepared)
    forward = forward_of(model)
    if forward is None or not (forward.is_split or capi.accel_sharded_modules(forward.handle)):
        return None
    prefix = f"{path}." if path else ""
    return on_main_process({name[len(prefix):]: to_torch(tensor) for name, tensor in capi.accel_get_state_dict(state, forward.handle).items()
                            if name.startswith(prefix)})


def is_inside_sharded(model, prepared) -> bool:
    """Whether a module has only the rows of this rank, because it is inside of a model that is sharded, and not the prepared one itself."""
    around, _ = _around(model, prepared)
    forward = forward_of(around)
    return around is not model and bool(forward.is_split or capi.accel_sharded_modules(forward.handle))


def _around(model, prepared):
    """The one of the prepared models in which a module is, and its path there; the module itself for any other."""
    for one in prepared:
        if isinstance(one, DistributedModel) and one is not model:
            for path, module in one.module.named_modules():
                if module is model:
                    return one, without_compilation(path)
    return model, ""


