// SPDX-License-Identifier: Apache-2.0
#include "nn/layers/attention_heads.hpp"

namespace accel::nn {

tensor::GeneratorBranch AttentionHeads::branch_of_rank(double dropout, c10::Device device) const {
  if (!split_rank_ || dropout == 0) return {device, std::nullopt};
  return {device, static_cast<uint64_t>(*split_rank_)};
}

}  // namespace accel::nn
