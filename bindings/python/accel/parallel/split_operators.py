"""The operators at the ends of a region whose tensors are split over the ranks of a group, for forwards of programs: tensors of accel and of torch.

`group` is that of an axis: `accel.Mesh().get_group("tp")`. All its ranks make the same calls. Each is an exchange in the forward and its adjoint in
the backward, or nothing in one of the two (docs/parallelism.md). On a group of one rank an operator returns its input.
"""

from .. import capi
from ..engine.values import of_kind, to_engine


def parallel_copy(tensor, group):
    """Before a layer whose outputs are split: the same values. Backward: the sum of the ranks' gradients."""
    return of_kind(tensor, capi.accel_parallel_copy(group.handle, to_engine(tensor)))


def parallel_reduce(tensor, group):
    """After a layer whose inputs are split: the sum over the ranks. Backward: the same gradient."""
    return of_kind(tensor, capi.accel_parallel_reduce(group.handle, to_engine(tensor)))


def parallel_gather(tensor, group, dim=-1, whole=-1, replicated=True):
    """The parts of all ranks, joined to a dimension of size `whole`; -1: the ranks times the own part. Backward: the own part of the gradient where
    all ranks compute the same from the result, which is `replicated`; else of the sum of the gradients."""
    return of_kind(tensor, capi.accel_parallel_gather(group.handle, to_engine(tensor), dim, whole, int(replicated)))


def parallel_scatter(tensor, group, dim=-1):
    """This rank's part of a tensor that all have. Backward: the gradients of the parts are gathered."""
    return of_kind(tensor, capi.accel_parallel_scatter(group.handle, to_engine(tensor), dim))


def parallel_reduce_scatter(tensor, group, dim=-1):
    """This rank's part of the sum over the ranks. Backward: the gradients of the parts are gathered."""
    return of_kind(tensor, capi.accel_parallel_reduce_scatter(group.handle, to_engine(tensor), dim))


def parallel_all_to_all(tensor, group, split, join, whole=-1):
    """Splits the dimension `split` and joins the parts of `join` to one of size `whole`. Backward: the reverse."""
    return of_kind(tensor, capi.accel_parallel_all_to_all(group.handle, to_engine(tensor), split, join, whole))
