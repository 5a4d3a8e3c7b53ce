// SPDX-License-Identifier: Apache-2.0
#include "nn/layers/attention.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include "base/error.hpp"
#include "nn/creation_device.hpp"
#include "nn/layers/dropout.hpp"
#include "nn/layers/initial.hpp"
#include "nn/layers/linear.hpp"
#include "nn/layers/split_heads.hpp"

namespace accel::nn {
namespace {

int64_t checked_head_size(int64_t embed_dim, int64_t num_heads) {
  check_size(embed_dim, "embed_dim");
  check_size(num_heads, "num_heads");
  require(embed_dim % num_heads == 0, Status::kInvalidArgument, "embed_dim ", embed_dim,
          " is not divisible by num_heads ", num_heads, "; every head needs the same size");
  return embed_dim / num_heads;
}

}  // namespace

SelfAttention::SelfAttention(int64_t embed_dim, int64_t num_heads, bool causal, bool bias, double dropout)
    : Projection("SelfAttention", 0, bias),
      AttentionHeads(num_heads, num_heads, checked_head_size(embed_dim, num_heads)),
      causal_(causal),
      dropout_(dropout) {
  check_probability(dropout, "dropout");
  // torch draws the output projection first, then the input projection, and clears the biases.
  out_projection_ = std::make_shared<Linear>(embed_dim, embed_dim, bias);
  add_parameter("in_proj_weight", at::empty({3 * embed_dim, embed_dim}, new_parameter_options()));
  fill_xavier_uniform(parameter(0));
  if (bias) {
    add_parameter("in_proj_bias", constant_parameter(0, {3 * embed_dim}));
    fill_constant(out_projection_->parameter(1), 0);
  }
  add_child("out_proj", out_projection_);
}

c10::IValue SelfAttention::forward(const Inputs& inputs) {
  const at::Tensor& input = only_tensor(inputs);
  const at::Tensor& weight = parameter(0);
  require(input.dim() == 3 && input.size(2) == weight.size(1), Status::kShapeMismatch,
          "attention was called with the shape ", input.sizes(), "; expected [batch, length, ", weight.size(1), "]");
  const Heads heads = split_heads(project(input), head_size());
  const double dropout = is_training() ? dropout_ : 0.0;
  at::Tensor mixed;
  {
    const auto branch = branch_of_rank(dropout, input.device());
    mixed = at::scaled_dot_product_attention(heads.query, heads.key, heads.value, {}, dropout, causal_);
  }
  return out_projection_->call(join_heads(mixed));
}

}  // namespace accel::nn
