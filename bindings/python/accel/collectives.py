"""What the ranks do together with tensors and trees of tensors, and functions on every tensor of a tree.

All ranks must make the same call. Trees are lists, tuples and dicts; results have the same.
"""

from . import capi
from .device import Device
from .state import current
from .values import like, to_engine

_REDUCTIONS = {"sum": capi.ACCEL_REDUCE_SUM, "none": capi.ACCEL_REDUCE_SUM, "mean": capi.ACCEL_REDUCE_MEAN, "min": capi.ACCEL_REDUCE_MIN,
               "max": capi.ACCEL_REDUCE_MAX, "product": capi.ACCEL_REDUCE_PRODUCT, "and": capi.ACCEL_REDUCE_AND,
               "or": capi.ACCEL_REDUCE_OR, "xor": capi.ACCEL_REDUCE_XOR}


def gather(tensor):
    """Every rank gets each tensor of all ranks, joined along dimension 0 in rank order."""
    return like(tensor, capi.accel_gather(current(), to_engine(tensor)))


def gather_uneven(tensor):
    """As gather(), for tensors whose dimension 0 differs by rank."""
    return like(tensor, capi.accel_gather_uneven(current(), to_engine(tensor)))


def gather_object(object):
    """Every rank gets the values of all ranks in one list; a list counts as its items."""
    return capi.accel_gather_object(current(), to_engine(object))


def gather_for_metrics(input_data, use_gather_object=False):
    """As gather(), and cuts off what the loader repeated to fill the last batch."""
    if use_gather_object and not isinstance(input_data, (list, tuple)):
        input_data = [input_data]
    return like(input_data, capi.accel_gather_for_metrics(current(), to_engine(input_data)))


def reduce(tensor, reduction="sum", scale=1.0):
    """Every rank gets the reduction of each tensor over all ranks: "sum", "mean", "min", "max", ..."""
    if reduction not in _REDUCTIONS:
        raise ValueError(f"reduction={reduction!r}: expected one of {', '.join(_REDUCTIONS)}")
    return like(tensor, capi.accel_reduce(current(), to_engine(tensor), _REDUCTIONS[reduction], float(scale)))


def broadcast(tensor, from_process=0):
    """Every rank gets one rank's tensors, written into its own."""
    value = to_engine(tensor)
    capi.accel_broadcast(current(), value, from_process)
    return like(tensor, value)


def broadcast_object_list(object_list, from_process=0):
    """Every rank gets one rank's list of values, written into its own list."""
    object_list[:] = capi.accel_broadcast_object_list(current(), to_engine(object_list), from_process)
    return object_list


def pad_across_processes(tensor, dim=0, pad_index=0, pad_first=False):
    """Pads one dimension of each tensor to its largest size over all ranks."""
    return like(tensor, capi.accel_pad_across_processes(current(), to_engine(tensor), dim,
                             float(pad_index), int(pad_first)))


def all_reduce(tensor, reduction="sum"):
    """Reduces one tensor over the ranks, in place."""
    capi.accel_all_reduce(current(), tensor, _REDUCTIONS[reduction])
    return tensor


def send(tensor, to_process, tag=0):
    capi.accel_send(current(), tensor, to_process, tag)


def recv(tensor, from_process, tag=0):
    """Fills a tensor with what another rank sends."""
    capi.accel_recv(current(), tensor, from_process, tag)
    return tensor


# Without other ranks


def concatenate(data, dim=0):
    """Joins trees of one structure, tensor by tensor."""
    return like(data[0] if data else None, capi.accel_concatenate(to_engine(data), dim))


def convert_to_fp32(tensor):
    """float16 and bfloat16 tensors become float32; others stay."""
    return like(tensor, capi.accel_convert_to_fp32(to_engine(tensor)))


def find_batch_size(data):
    """Rows of the first tensor of the tree."""
    return capi.accel_find_batch_size(to_engine(data))


def listify(data):
    """Tensors become nested lists of numbers."""
    return like(data, capi.accel_listify(to_engine(data)))


def pad_input_tensors(tensor, batch_size, num_processes, dim=0):
    """Zeros behind each tensor, so that processes can share it equally. The size is the tensors' own: `batch_size` is not used."""
    return like(tensor, capi.accel_pad_input_tensors(to_engine(tensor), num_processes, dim))


def recursively_apply(func, data, *args, error_on_other_type=False, **kwargs):
    """The same tree with a function applied to each tensor."""
    return like(data, capi.accel_recursively_apply(to_engine(data), int(error_on_other_type), lambda tensor: func(tensor, *args, **kwargs)))


def send_to_device(tensor, device, non_blocking=False, skip_keys=None):
    """Moves each tensor to a device."""
    skip_keys = [skip_keys] if isinstance(skip_keys, str) else skip_keys
    return like(tensor, capi.accel_send_to_device(to_engine(tensor), Device(device), int(non_blocking), skip_keys))


def slice_tensors(data, tensor_slice):
    """Rows of each tensor."""
    if tensor_slice.step not in (None, 1):
        raise ValueError("slices of trees have no step")
    end = 2**62 if tensor_slice.stop is None else tensor_slice.stop
    return like(data, capi.accel_slice_tensors(to_engine(data), tensor_slice.start or 0, end))


def flight_record():
    """What this rank did last, as a JSON text: the latest collectives with their times."""
    return capi.accel_flight_record(current())
