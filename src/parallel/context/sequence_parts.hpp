// SPDX-License-Identifier: Apache-2.0
// Sequence parts: which positions of a sequence each rank of a group has. A sequence is cut into chunks of one size.
// Under causal attention a late position sees more than an early one, so that ranks with contiguous parts have unequal
// work; with one chunk of the sequence's head and one of its tail all have as much.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "parallel/regions/parallel_operators.hpp"

namespace accel::parallel {

enum class SequenceOrder {
  kContiguous,   // rank r of n has chunk r of n
  kHeadAndTail,  // rank r of n has the chunks r and 2 n - 1 - r of 2 n, joined in this order
};

// The chunks of a rank. Throws if the length cannot be cut into chunks of one size.
std::vector<Share> sequence_parts(int64_t length, int64_t rank, int64_t ranks, SequenceOrder order);

// The positions in the whole sequence, int64 [length / ranks], of what a rank has.
at::Tensor sequence_positions(int64_t length, int64_t rank, int64_t ranks, SequenceOrder order);

// This rank's part along `dim`. No communication, also not backward: gradients of the whole are zero at the positions
// of other ranks.
at::Tensor split_sequence(const at::Tensor& whole, int64_t dim, SequenceOrder order, const RankGroup& group);

// The whole along `dim` on all ranks, in the order of its positions. Each rank passes its part; `gradient` as in
// parallel_gather().
at::Tensor join_sequence(const at::Tensor& part, int64_t dim, SequenceOrder order, GatheredGradient gradient,
                         const RankGroup& group);

}  // namespace accel::parallel
