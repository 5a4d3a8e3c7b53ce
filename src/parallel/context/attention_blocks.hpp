// SPDX-License-Identifier: Apache-2.0
// Attention of this rank's queries to the blocks of keys and values that the ranks of a group have, one after the
// other. Partial results are merged by their logsumexp, and each block is differentiated with the final ones (Liu et
// al., "Ring Attention with Blockwise Transformers", 2023).
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "parallel/context/block_exchange.hpp"
#include "parallel/context/sequence_parts.hpp"

namespace accel::parallel {

// Queries are [batch, heads, positions of this rank, size], keys and values [2, batch, heads, positions, size] and
// contiguous, without autograd. Keys and values may have fewer heads, of which each is for as many
// successive heads of the queries.
struct BlockwiseAttention {
  at::Tensor query, keys_and_values;
  // Whether the gradients are slices of one projection's, as nn/layers/split_heads.hpp wants them.
  bool is_of_one_projection = false;
  bool is_causal = false;
  double scale = 1;
  SequenceOrder order = SequenceOrder::kHeadAndTail;
  BlockRoute route;

  // The output, and the logsumexp of the scores [batch, heads, positions].
  std::tuple<at::Tensor, at::Tensor> forward() const;
  // The gradients of queries, keys and values.
  std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(const at::Tensor& out_gradient, const at::Tensor& out,
                                                          const at::Tensor& logsumexp) const;
};

}  // namespace accel::parallel
