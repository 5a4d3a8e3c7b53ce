#pragma once

#include "nn/module.hpp"

namespace accel::nn {

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
