// SPDX-License-Identifier: Apache-2.0
// Layer cache: an object that has the keys and values of earlier tokens of one layer, in the place of a pair [key,
// value]. It attends by itself, and so decides where they are.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>

namespace accel::nn {

struct AttentionRule;

class LayerCache : public torch::CustomClassHolder {
 public:
  // Stores the keys and values [1, key heads, tokens, size] of the call's tokens, and gives what their queries see,
  // like the query.
  virtual at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const AttentionRule& rule) = 0;
  // The positions of the call's tokens in their sequences, int64 [1, tokens].
  virtual const at::Tensor& positions() const = 0;
  // The tokens of the call whose scores are needed, int64 [n].
  virtual const at::Tensor& wanted() const = 0;

  // Null: the value is something else.
  static LayerCache* of(const c10::IValue& layer) {
    return layer.isCapsule() ? dynamic_cast<LayerCache*>(layer.toCapsule().get()) : nullptr;
  }
  // The cache of the first layer of past_key_values.
  static LayerCache* first_of(const c10::IValue& past);
};

// An attention layer that can use a layer cache.
class CachedAttention {
 public:
  virtual ~CachedAttention() = default;
  virtual int64_t window() const { return 0; }  // the latest positions that a position sees; 0: all
};

// A model with a last position.
class PositionLimit {
 public:
  virtual ~PositionLimit() = default;
  virtual int64_t max_positions() const = 0;  // 0: none
};

}  // namespace accel::nn
