// SPDX-License-Identifier: Apache-2.0
#include "tensor/autograd/backward.hpp"

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <utility>

#include "base/error.hpp"
#include "tensor/autograd/autograd_node.hpp"
#include "tensor/device/device_threads.hpp"

namespace accel::tensor {
namespace {

struct WatchGradients final : torch::autograd::Node {
  explicit WatchGradients(GradientFunction function) : function(std::move(function)) {}
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return function(gradients);
  }
  std::string name() const override { return "WatchGradients"; }

  const GradientFunction function;
};

}  // namespace

std::vector<at::Tensor> watch_gradients(const std::vector<at::Tensor>& tensors, GradientFunction function) {
  const auto node = make_autograd_node<WatchGradients>(std::move(function));
  torch::autograd::edge_list edges;
  for (const at::Tensor& tensor : tensors) edges.push_back(torch::autograd::impl::gradient_edge(tensor));
  node->set_next_edges(std::move(edges));
  std::vector<at::Tensor> watched;
  for (const at::Tensor& tensor : tensors) {
    watched.push_back(tensor.detach());
    torch::autograd::set_history(watched.back(), node);
  }
  return watched;
}

void check_backward(const at::Tensor& tensor, const BackwardOptions& options) {
  if (options.gradient.defined()) {
    require(options.gradient.sizes() == tensor.sizes(), Status::kShapeMismatch, "the gradient has shape ",
            options.gradient.sizes(), "; expected ", tensor.sizes(), " as the tensor");
  } else {
    require(tensor.numel() == 1, Status::kShapeMismatch, "the tensor has shape ", tensor.sizes(),
            "; expected one element: take its mean or sum, or give a gradient of this shape");
  }
  if (!options.inputs) return;
  require(!options.inputs->empty(), Status::kInvalidArgument,
          "inputs has no tensors; expected those that shall get gradients, or NULL for all leaves");
  for (const at::Tensor& input : *options.inputs)
    require(input.requires_grad() && input.is_leaf(), Status::kInvalidArgument, "inputs has a tensor of shape ",
            input.sizes(), " that ", input.is_leaf() ? "requires no gradient" : "was computed from others",
            "; expected leaves that require gradients");
}

void backward(const at::Tensor& tensor, const BackwardOptions& options, const at::Tensor& seed) {
  start_device_threads();
  torch::autograd::variable_list seeds;
  if (seed.defined()) {
    seeds.push_back(seed);
  } else if (options.gradient.defined()) {
    seeds.push_back(options.gradient);
  }
  torch::autograd::backward({tensor}, seeds, options.retain_graph.value, options.create_graph,
                            options.inputs.value_or(std::vector<at::Tensor>()));
}

void backward(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& gradients) {
  start_device_threads();
  torch::autograd::backward(tensors, gradients);
}

}  // namespace accel::tensor
