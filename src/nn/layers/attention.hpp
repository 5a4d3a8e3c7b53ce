#pragma once

#include "nn/module.hpp"

namespace accel::nn {

// Query, key and value of all heads as views [batch, heads, length, size] of one projection [batch, length, 3 * heads *
// size].
struct Heads {
  at::Tensor query;
  at::Tensor key;
  at::Tensor value;
};
Heads split_heads(const at::Tensor& projected, int64_t num_heads);

// Back to [batch, length, heads * size].
at::Tensor join_heads(const at::Tensor& mixed);

// Self-attention with the parameters of torch.nn.MultiheadAttention; input [batch, length, embed_dim].
class SelfAttention final : public Module {
 public:
  SelfAttention(int64_t embed_dim, int64_t num_heads, bool causal, bool bias, double dropout);

 protected:
  c10::IValue forward(const Inputs& inputs) override;

 private:
  int64_t num_heads_;
  bool causal_;
  bool has_bias_;
  double dropout_;
  ModulePtr out_projection_;
};

}  // namespace accel::nn
