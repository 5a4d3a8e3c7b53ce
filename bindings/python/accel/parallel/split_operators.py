# SPDX-License-Identifier: Apache-2.0
"""The operators at the ends of a region whose tensors are split over the ranks of a group, for forwards of programs: tensors of accel and of torch.

`group` is that of an axis: `accel.Mesh().get_group("tp")`. All its ranks make the same calls. Each is an exchange in the forward and its adjoint in
the backward, or nothing in one of the two (docs/parallelism.md). On a group of one rank an operator returns its input.
"""

from ..generated.split_operators import (parallel_all_to_all, parallel_class_scores, parallel_copy, parallel_gather,  # noqa: F401
                                         parallel_reduce, parallel_reduce_scatter, parallel_scatter)
