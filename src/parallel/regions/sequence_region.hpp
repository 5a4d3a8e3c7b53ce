// SPDX-License-Identifier: Apache-2.0
// Sequence region: a part of a model whose activations are split along the sequence between split layers (Korthikanti
// et al., "Reducing Activation Recomputation in Large Transformer Models", 2022). The sequence is the last dimension
// but one, and its length must be divisible by the number of ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "parallel/regions/parallel_operators.hpp"

namespace accel::parallel {

constexpr int64_t kSequence = -2;  // the dimension

// Throws unless the ranks can have equal parts of the sequence of a whole tensor.
void check_sequence(const at::Tensor& whole, const comm::Communicator& group);

// This rank's positions of a whole tensor.
at::Tensor split_sequence(const at::Tensor& whole, const RankGroup& group);
// This rank's positions of the sum over the ranks.
at::Tensor sum_and_split_sequence(const at::Tensor& terms, const RankGroup& group);
// All positions, for layers that compute terms of their gradient on each rank.
at::Tensor gather_sequence(const at::Tensor& part, const RankGroup& group);

}  // namespace accel::parallel
