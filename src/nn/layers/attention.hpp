// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "nn/layers/attention_heads.hpp"
#include "nn/layers/projection.hpp"

namespace accel::nn {

// Self-attention with the parameters of torch.nn.MultiheadAttention; input [batch, length, embed_dim].
class SelfAttention final : public Projection, public AttentionHeads {
 public:
  SelfAttention(int64_t embed_dim, int64_t num_heads, bool causal, bool bias, double dropout);

  // The projection to query, key and value, which are packed in this order.
  std::string product_name() const override { return "in_proj"; }

 protected:
  c10::IValue forward(const Inputs& inputs) override;

 private:
  bool causal_;
  double dropout_;
  ModulePtr out_projection_;
};

}  // namespace accel::nn
