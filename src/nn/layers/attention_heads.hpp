// SPDX-License-Identifier: Apache-2.0
// Attention heads: what an attention layer says of its heads, so that a plan can split it between them.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "tensor/device/generator_branch.hpp"

namespace accel::nn {

class AttentionHeads {
 public:
  virtual ~AttentionHeads() = default;

  // Features of a projection, of which there are `features`, that no split may part: a key head, or the query heads
  // that share one.
  int64_t inseparable(int64_t features) const {
    if (has_fused_heads_ && features == 3 * heads_ * head_size_) return 3 * head_size_;
    return features == heads_ * head_size_ ? heads_ / key_heads_ * head_size_ : head_size_;
  }
  // Whether a projection to or from queries, keys or values has as many features.
  bool has_projection(int64_t features) const {
    return features == heads_ * head_size_ || features == key_heads_ * head_size_ ||
           (has_fused_heads_ && features == 3 * heads_ * head_size_);
  }
  // The sizes of queries, keys and values that are behind each other.
  std::vector<int64_t> packed_sizes() const {
    return {heads_ * head_size_, key_heads_ * head_size_, key_heads_ * head_size_};
  }
  int64_t heads() const { return heads_; }
  int64_t key_heads() const { return key_heads_; }
  int64_t head_size() const { return head_size_; }
  // Its heads are split, and this is the rank's number among those that share them: ranks drop weights of their own.
  void set_split_rank(int64_t rank) { split_rank_ = rank; }
  int64_t split_rank() const { return split_rank_.value_or(0); }

 protected:
  AttentionHeads(int64_t heads, int64_t key_heads, int64_t head_size)
      : heads_(heads), key_heads_(key_heads), head_size_(head_size) {}

  // One projection gives query, key and value of one head after another.
  void set_fused_heads() { has_fused_heads_ = true; }
  // Around an attention with this probability of dropping weights.
  tensor::GeneratorBranch branch_of_rank(double dropout, c10::Device device) const;

 private:
  int64_t heads_, key_heads_, head_size_;  // of the whole layer
  bool has_fused_heads_ = false;
  std::optional<int64_t> split_rank_;
};

}  // namespace accel::nn
