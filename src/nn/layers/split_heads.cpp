// SPDX-License-Identifier: Apache-2.0
#include "nn/layers/split_heads.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <string>
#include <utility>
#include <vector>

#include "tensor/autograd/autograd_node.hpp"

namespace accel::nn {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

// Query, key and value [batch, heads, length, size] of [batch, length, 3, heads, size].
std::vector<at::Tensor> heads_of(const at::Tensor& split) { return split.permute({2, 0, 3, 1, 4}).unbind(0); }

// The gradients of query, key and value in one tensor, of the projection's shape. LibTorch's own backward of the views
// would copy them twice.
class SplitHeadsBackward final : public Node {
 public:
  using Node::Node;

  std::string name() const override { return "SplitHeadsBackward"; }

  variable_list apply(variable_list&& heads) override {
    if (!heads[0].defined() && !heads[1].defined() && !heads[2].defined()) return variable_list(1);
    if (at::Tensor whole = whole_of(heads); whole.defined()) return {std::move(whole)};
    std::vector<at::Tensor> parts;
    for (const at::Tensor& head : heads) parts.push_back(head.defined() ? head : at::zeros(part_sizes(), options));
    return {at::stack(parts).permute({1, 3, 0, 2, 4}).reshape(sizes)};
  }

  std::vector<int64_t> sizes;  // of the projection
  int64_t num_heads = 0;
  at::TensorOptions options;

 private:
  std::vector<int64_t> part_sizes() const { return {sizes[0], num_heads, sizes[1], sizes[2] / 3 / num_heads}; }

  // Undefined unless the three are slices of such a tensor, as kernels/attention/tiled_attention.hpp makes them.
  at::Tensor whole_of(const variable_list& heads) const {
    if (at::GradMode::is_enabled()) return {};
    const int64_t width = sizes[2] / 3;
    const std::vector<int64_t> strides = {sizes[1] * sizes[2], width / num_heads, sizes[2], 1};
    for (size_t i = 0; i < heads.size(); i++) {
      const at::Tensor& head = heads[i];
      const bool is_slice = head.defined() && head.sizes() == part_sizes() && head.strides() == strides &&
                            head.is_alias_of(heads[0]) &&
                            head.storage_offset() == heads[0].storage_offset() + static_cast<int64_t>(i) * width;
      if (!is_slice) return {};
    }
    return heads[0].as_strided(sizes, {sizes[1] * sizes[2], sizes[2], 1});
  }
};

}  // namespace

Heads split_heads(const at::Tensor& projected, int64_t head_size) {
  const int64_t batch = projected.size(0), length = projected.size(1), num_heads = projected.size(2) / 3 / head_size;
  const std::vector<int64_t> split = {batch, length, 3, num_heads, head_size};
  if (!at::GradMode::is_enabled() || !projected.requires_grad()) {
    const std::vector<at::Tensor> parts = heads_of(projected.view(split));
    return {parts[0], parts[1], parts[2]};
  }
  std::vector<at::Tensor> parts;
  {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    parts = heads_of(projected.detach().view(split));
  }
  const auto node = tensor::make_autograd_node<SplitHeadsBackward>(torch::autograd::collect_next_edges(projected));
  node->sizes = projected.sizes().vec();
  node->num_heads = num_heads;
  node->options = projected.options();
  for (const at::Tensor& part : parts) torch::autograd::set_history(part, node);
  return {parts[0], parts[1], parts[2]};
}

at::Tensor view_heads(const at::Tensor& projected, int64_t head_size) {
  return projected.unflatten(-1, {-1, head_size}).transpose(1, 2);
}

at::Tensor join_heads(const at::Tensor& mixed) {
  const int64_t batch = mixed.size(0), heads = mixed.size(1), length = mixed.size(2), size = mixed.size(3);
  return mixed.transpose(1, 2).reshape({batch, length, heads * size});
}

}  // namespace accel::nn
