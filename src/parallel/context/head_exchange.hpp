// SPDX-License-Identifier: Apache-2.0
// Head exchange: attention of a split sequence with whole positions of some heads on each rank, by all-to-alls before
// and after it (Jacobs et al., "DeepSpeed Ulysses", 2023).
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "parallel/regions/parallel_operators.hpp"

namespace accel::parallel {

// Tensors are [batch, heads, positions of this rank, size], the parts contiguous. With autograd, which keeps the
// exchanged tensors. Heads need not divide by the ranks, if there is one for each. Fewer heads of keys than of queries:
// the ranks divide the heads of queries and divide those of keys or are a multiple of them, which are repeated then.
at::Tensor attention_by_heads(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, bool is_causal,
                              std::optional<double> scale, const RankGroup& group);

}  // namespace accel::parallel
