# SPDX-License-Identifier: Apache-2.0
"""Collectives of tensors and trees of tensors.

All ranks must make the same call. Trees are lists, tuples and dicts; results have the same. With `async_op=True` a call only starts,
and returns a Work.
"""

import itertools
import warnings

from .. import capi
from ..generated.errors import CollectiveMismatchError as DistributedOperationException  # noqa: F401  (Accelerate's name)
from ..engine.objects import from_this_host, packed, unpacked
from ..engine.torch_types import is_torch_tensor
from ..engine.values import like, map_leaves, of_kind, to_engine
from ..engine.work import Work
from ..state.job import current
from ..state.process import GradientState, PartialState
from ..tensors.creation import empty
from ..tensors.tensor_type import is_tensor
from ..tensors.trees import CannotPadNestedTensorWarning

_REDUCTIONS = {"sum": capi.ACCEL_REDUCE_SUM, "none": capi.ACCEL_REDUCE_SUM, "mean": capi.ACCEL_REDUCE_MEAN, "min": capi.ACCEL_REDUCE_MIN,
               "max": capi.ACCEL_REDUCE_MAX, "product": capi.ACCEL_REDUCE_PRODUCT, "and": capi.ACCEL_REDUCE_AND,
               "or": capi.ACCEL_REDUCE_OR, "xor": capi.ACCEL_REDUCE_XOR}


def _run(call, start, async_op, finish, *arguments):
    """Makes a call, or starts it; `finish` turns what the engine gives into what the caller gets."""
    return Work(start(current(), *arguments), finish) if async_op else finish(call(current(), *arguments))


def _reduction(name):
    if name not in _REDUCTIONS:
        raise ValueError(f"reduction={name!r}: expected one of {', '.join(_REDUCTIONS)}")
    return _REDUCTIONS[name]


def gather(tensor, async_op=False):
    """Every rank gets each tensor of all ranks, joined along dimension 0 in rank order."""
    return _run(capi.accel_gather, capi.accel_gather_async, async_op, lambda result: like(tensor, result), to_engine(tensor))


def gather_uneven(tensor, async_op=False):
    """gather() for tensors whose dimension 0 differs by rank."""
    return _run(capi.accel_gather_uneven, capi.accel_gather_uneven_async, async_op,
                lambda result: like(tensor, result), to_engine(tensor))


def gather_object(object, async_op=False):
    """Every rank gets the values of all ranks in one list; a list counts as its items."""
    state = current()
    return _run(capi.accel_gather_object, capi.accel_gather_object_async, async_op,
                lambda result: unpacked(result, from_this_host(state)), packed(object))


def gather_for_metrics(input_data, use_gather_object=False, async_op=False):
    """gather() without the rows that the loader repeated to fill batches. With `use_gather_object` as gather_object(): the items
    of all ranks in one list, whose tensors may have any sizes; in a list with an item for each row of the batch those of repeated rows are
    left out, of others the ends."""
    state = current()
    input_data = _without_own_repetitions(input_data, use_gather_object)
    if use_gather_object:
        if not hasattr(input_data, "__iter__"):
            raise TypeError(f"use_gather_object=True gathers the items of a list, or of another value that has some; a {type(input_data).__name__} was given")
        return _run(capi.accel_gather_object_for_metrics, capi.accel_gather_object_for_metrics_async, async_op,
                    lambda result: unpacked(result, from_this_host(state)), packed(list(input_data)))
    value, finish = to_engine(input_data), lambda result: like(input_data, result)
    if not _has_tensors_only(value):
        value, finish = packed(input_data), lambda result: unpacked(result, from_this_host(state))
    return _run(capi.accel_gather_for_metrics, capi.accel_gather_for_metrics_async, async_op, finish, value)


def _without_own_repetitions(data, as_objects):
    """A value without the last rows of a batch that are repetitions which only its loader knows of."""
    repeating = getattr(GradientState().active_dataloader, "repeating", None)
    if repeating is None:
        return data
    rows, count = repeating
    if isinstance(data, (list, tuple)) and (as_objects or not _has_tensors_only(to_engine(data))):
        return data[:count] if len(data) == rows else data
    return map_leaves(data, lambda leaf: hasattr(leaf, "shape") and len(leaf.shape) > 0 and leaf.shape[0] == rows, lambda tensor: tensor[:count])


def _has_tensors_only(value):
    if isinstance(value, (list, tuple)):
        return all(_has_tensors_only(item) for item in value)
    return all(_has_tensors_only(item) for item in value.values()) if isinstance(value, dict) else is_tensor(value)


def reduce(tensor, reduction="mean", scale=1.0, async_op=False):
    """Every rank gets the reduction of each tensor over all ranks: "mean", "sum", "min", "max", ..."""
    return _run(capi.accel_reduce, capi.accel_reduce_async, async_op,
                lambda result: like(tensor, result), to_engine(tensor), _reduction(reduction), float(scale))


def broadcast(tensor, from_process=0, async_op=False):
    """Every rank gets one rank's tensors, written into its own."""
    value = to_engine(tensor)
    return _run(capi.accel_broadcast, capi.accel_broadcast_async, async_op, lambda _: like(tensor, value), value, from_process)


def broadcast_object_list(object_list, from_process=0, async_op=False):
    """Every rank gets one rank's list of values, written into its own list."""
    state = current()
    sends = capi.accel_process_index(state) == from_process

    def write(values):
        if not sends:  # whose objects stay themselves
            object_list[:] = unpacked(values, from_this_host(state))
        return object_list

    return _run(capi.accel_broadcast_object_list, capi.accel_broadcast_object_list_async, async_op,
                write, packed(object_list) if sends else [None] * len(object_list), from_process)


def from_rank(rank, compute):
    """The result of a function on one rank, on all of them. Its error is one of all, also that the value cannot be sent."""
    found, failure = [None, None], None
    if PartialState().process_index == rank:
        try:
            found[0] = compute()
            packed(found)
        except Exception as error:
            found, failure = [None, str(error) or type(error).__name__], error
    broadcast_object_list(found, from_process=rank)
    if failure is not None:
        raise failure
    if found[1] is not None:
        raise ValueError(f"rank {rank} failed: {found[1]}")
    return found[0]


def agreed(compute, lines=lambda _: ()):
    """The result of a function on this rank, before the ranks do something together. Its error on one rank is one of all, and so are other
    `lines` of what it returned: none waits for a rank that has refused."""
    result = failure = None
    try:
        result = compute()
        said = [None, False, list(lines(result))]
    except Exception as error:
        failure, said = error, [str(error) or type(error).__name__, isinstance(error, NotImplementedError), []]
    of_ranks = gather_object([said])
    if failure is not None:
        raise failure
    for rank, (refusal, is_unsupported, _) in enumerate(of_ranks):
        if refusal is not None:
            raise (NotImplementedError if is_unsupported else ValueError)(f"rank {rank} failed: {refusal}")
    for rank, (_, _, other) in enumerate(of_ranks):
        first, here = next(((first, here) for first, here in itertools.zip_longest(of_ranks[0][2], other) if first != here), (None, None))
        if first != here:
            raise DistributedOperationException(f"rank {rank} has {here or 'nothing'} where rank 0 has {first or 'nothing'}; expected the same on all ranks")
    return result


def pad_across_processes(tensor, dim=0, pad_index=0, pad_first=False, async_op=False):
    """Pads one dimension of each tensor to its largest size over all ranks. A nested tensor of torch is returned with a warning, as it is."""
    if is_torch_tensor(tensor) and tensor.is_nested:
        warnings.warn("a nested tensor cannot be padded, and is returned as it is", CannotPadNestedTensorWarning, stacklevel=2)
        return tensor
    return _run(capi.accel_pad_across_processes, capi.accel_pad_across_processes_async, async_op,
                lambda result: like(tensor, result), to_engine(tensor), dim, float(pad_index), int(pad_first))


def copy_tensor_to_devices(tensor=None):
    """The tensor of the one rank that has it, on all ranks; the others pass None."""
    found = [entry for entry in gather_object([tensor]) if entry is not None]
    if len(found) != 1:
        raise ValueError(f"{len(found)} ranks have a tensor; expected one, and None on the others")
    value = to_engine(found[0])
    return of_kind(found[0], value.to(capi.accel_device(current())))


# Of one tensor, without copies and messages about its shape


def all_reduce(tensor, reduction="sum", async_op=False):
    """Reduces a tensor over the ranks, in place."""
    return _run(capi.accel_all_reduce, capi.accel_all_reduce_async, async_op, lambda _: tensor, to_engine(tensor), _reduction(reduction))


def all_gather(tensor, async_op=False):
    """The tensors of all ranks, one behind the other: [num_processes, ...]."""
    return _into_new(capi.accel_all_gather, capi.accel_all_gather_async, async_op, tensor, lambda shape: (capi.accel_num_processes(current()), *shape))


def reduce_scatter(tensor, reduction="sum", async_op=False):
    """Reduces [num_processes, ...] over the ranks; rank i gets row i."""
    return _into_new(capi.accel_reduce_scatter, capi.accel_reduce_scatter_async, async_op, tensor, lambda shape: shape[1:], _reduction(reduction))


def all_to_all(tensor, async_op=False):
    """Row i of [num_processes, ...] goes to rank i, which gets one row of each rank."""
    return _into_new(capi.accel_all_to_all, capi.accel_all_to_all_async, async_op, tensor, lambda shape: shape)


def _into_new(call, start, async_op, tensor, shape_of, *settings):
    """A collective with its result in a new tensor like the one that it sends."""
    sent = to_engine(tensor)
    output = empty(*shape_of(sent.shape), dtype=sent.dtype, device=sent.device)
    return _run(call, start, async_op, lambda _: of_kind(tensor, output), sent, *settings, output)


def scatter(tensor, rows=None, from_process=0, async_op=False):
    """Fills a tensor with this rank's row of what one rank passes as `rows`: [num_processes, ...]."""
    return _run(capi.accel_scatter, capi.accel_scatter_async, async_op, lambda _: tensor, to_engine(rows), from_process, to_engine(tensor))


def send(tensor, to_process, tag=0, async_op=False):
    return _run(capi.accel_send, capi.accel_send_async, async_op, lambda _: None, to_engine(tensor), to_process, tag)


def recv(tensor, from_process, tag=0, async_op=False):
    """Fills a tensor with what another rank sends."""
    return _run(capi.accel_recv, capi.accel_recv_async, async_op, lambda _: tensor, to_engine(tensor), from_process, tag)


def progress(seconds=0.0):
    """For programs with a loop of their own: runs the callbacks of works that have ended, and waits for one up to `seconds`. Whether
    works are still under way; they continue without this."""
    return capi.accel_progress(current(), int(seconds * 1e6)) == capi.ACCEL_IN_PROGRESS


def flight_record():
    """The last work of this rank, as a JSON text: the latest collectives with their times."""
    return capi.accel_flight_record(current())
