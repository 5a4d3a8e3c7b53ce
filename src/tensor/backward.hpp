// Back-propagation from one tensor, and how.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <vector>

namespace accel::tensor {

struct BackwardOptions {
  std::optional<bool> retain_graph;               // as create_graph
  bool create_graph = false;                      // the gradients have a history too
  std::optional<std::vector<at::Tensor>> inputs;  // the only leaves that get gradients
  at::Tensor gradient;                            // of the tensor; undefined: 1, for one element
};

// Refuses what a backward cannot begin from: kShapeMismatch for the shape, kInvalidArgument for inputs.
void check_backward(const at::Tensor& tensor, const BackwardOptions& options);

// Back-propagates from a checked tensor. `seed` takes the place of the options' gradient where it is defined.
void backward(const at::Tensor& tensor, const BackwardOptions& options, const at::Tensor& seed = {});

// Makes of gradients those that go on in their place; undefined ones are none.
using GradientFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& gradients)>;

// The same tensors, whose gradients pass through a function in each backward, all at once. Each needs a gradient.
std::vector<at::Tensor> watch_gradients(const std::vector<at::Tensor>& tensors, GradientFunction function);

}  // namespace accel::tensor
