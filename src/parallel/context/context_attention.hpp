// SPDX-License-Identifier: Apache-2.0
// Context-parallel attention: scaled dot-product attention of a sequence whose positions are split over a group of
// ranks. Each rank passes queries, keys and values of its positions and gets the output of them; outputs and gradients
// are those of the whole sequence in one process.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>

#include "config/generated/choices/context_method.hpp"
#include "parallel/context/sequence_parts.hpp"
#include "parallel/regions/exchange_memory.hpp"

namespace accel::parallel {

struct ContextParallelism {
  RankGroup group;
  ContextMethod method = ContextMethod::kAllGather;
  // The order of the ranks' positions. Of kUlysses under causal attention: contiguous.
  SequenceOrder order = SequenceOrder::kHeadAndTail;
  // For blocks that the ranks of a host read in place; null: they are copied. Where one rank has one, all have.
  std::shared_ptr<ExchangeMemory> memory = nullptr;
};

// Tensors are [batch, heads, positions, size] on the CPU, of float32, float64, bfloat16 or float16, with as many
// positions on all ranks. Keys and values may have fewer heads, which divide those of the queries. The default scale is
// 1 / sqrt(size). All ranks call it in the same order, forward and backward, also a rank that needs no gradient of it.
// Partial results and their gradients are added in float32, or float64 for float64. There is no second derivative.
at::Tensor context_parallel_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                      bool is_causal, std::optional<double> scale, const ContextParallelism& split);

}  // namespace accel::parallel
