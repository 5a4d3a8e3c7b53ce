// SPDX-License-Identifier: Apache-2.0
// Second derivatives that an operator has not.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <string>

#include "base/error.hpp"
#include "tensor/autograd/autograd_node.hpp"

namespace accel::nn {

class NoSecondDerivative final : public torch::autograd::Node {
 public:
  using Node::Node;
  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override {
    fail(Status::kUnsupported, message);
  }
  std::string message;
};

// In the backward of a node with these edges: gradients that were computed without a graph fail with the message where
// they are differentiated.
inline void refuse_second_derivative(const torch::autograd::variable_list& gradients, const std::string& message,
                                     const torch::autograd::edge_list& edges) {
  if (!at::GradMode::is_enabled()) return;
  const auto node = tensor::make_autograd_node<NoSecondDerivative>(torch::autograd::edge_list(edges));
  node->message = message;
  for (const at::Tensor& gradient : gradients)
    if (gradient.defined()) torch::autograd::set_history(gradient, node);
}

}  // namespace accel::nn
