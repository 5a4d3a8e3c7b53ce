// SPDX-License-Identifier: Apache-2.0
// Token exchange: the ranks along the axis "expert" of the mesh have different experts of a layer. Tokens go to the
// ranks of their experts, and the results come back (Lepikhin et al., "GShard", 2020). Of rows of `e` bytes in M tokens
// with k experts each a rank receives 2 M k e (n - 1) / n on average, forward and backward alike, and 4 bytes for each
// number of tokens of an expert ahead of it.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "nn/split/expert_ranks.hpp"
#include "parallel/regions/exchange.hpp"

namespace accel::parallel {

// Sizes that ranks must have alike in a layer, since they say how rows are read.
struct ExpertLayerSizes {
  int64_t experts_per_token, intermediate_size;
};

// Each rank calls a layer, and differentiates it, as often and in the same order, also with no tokens at all.
class TokenExchange final : public nn::ExpertRanks {
 public:
  // The experts are shared out evenly, in the order of the ranks.
  TokenExchange(RankGroup ranks, const ExpertLayerSizes& sizes) : ranks_(std::move(ranks)), sizes_(sizes) {}

  nn::DispatchedTokens dispatch(const at::Tensor& rows, const std::vector<int64_t>& counts) const override;
  at::Tensor combine(const at::Tensor& results, const std::vector<int64_t>& counts,
                     const nn::ExpertCounts& received) const override;

 private:
  RankGroup ranks_;
  ExpertLayerSizes sizes_;
};

}  // namespace accel::parallel
