# SPDX-License-Identifier: Apache-2.0
"""Exchanges of the data ranks, which read different batches."""

from .. import capi
from ..parallel import collectives
from ..parallel.parallelism_config import Mesh
from ..state.job import Job, current
from ..tensors.trees import recursively_apply

_DATA, _GRADIENT = "replicate,shard", "replicate,shard,context"


def mean_over(axes, values):
    """The mean of a tensor over the ranks along some axes of the job's mesh."""
    current()
    mesh = Mesh()
    if mesh.size(axes) == 1:
        return values
    with mesh.get_group(axes):
        return collectives.reduce(values, "mean")


def avg_losses_across_data_parallel_group(losses):
    """The means of some losses over the data ranks, in one tensor."""
    import torch

    return mean_over(_DATA, torch.cat([loss.detach().clone().reshape(1) for loss in losses]))


def gather_across_data_parallel_groups(tensor):
    """The tensors of all data ranks, joined along dimension 0, in each place of a tree. One without dimensions counts as one with a row."""
    mesh = Mesh()

    def gathered(one):
        one = one.clone()[None] if one.ndim == 0 else one
        if mesh.size(_DATA) == 1:
            return one
        with mesh.get_group(_DATA):
            return collectives.gather(one)

    return recursively_apply(gathered, tensor, error_on_other_type=True)


def on_main_process(whole):
    """The tensors by name that rank 0 has collected, on the main process: under Megatron-LM's settings they go to the last one. Others get none."""
    state = current()
    last = capi.accel_num_processes(state) - 1
    if Job.megatron_lm_plugin is None or last == 0:
        return whole
    import torch

    described = collectives.broadcast_object_list([[(name, tuple(one.shape), str(one.dtype)) for name, one in whole.items()]])[0]
    rank, received = capi.accel_process_index(state), {}
    for name, shape, dtype in described:
        if rank == 0:
            collectives.send(whole[name].contiguous(), last)
        elif rank == last:
            received[name] = collectives.recv(torch.empty(shape, dtype=getattr(torch, dtype.rpartition(".")[2])), 0)
    return received


def sum_over_gradient_ranks(values):
    """The sum of a tensor over the ranks that average their gradients."""
    mesh = Mesh()
    if mesh.size(_GRADIENT) == 1:
        return values
    with mesh.get_group(_GRADIENT):
        return collectives.reduce(values, "sum")


def gradient_ranks():
    """Their number."""
    return Mesh().size(_GRADIENT)


def mean_over_gradient_ranks(values):
    """The mean of a tensor over the ranks that average their gradients."""
    return mean_over(_GRADIENT, values)
