// SPDX-License-Identifier: Apache-2.0
// Backward from one tensor, and its options.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <vector>

#include "config/generated/settings/tensor/backward.hpp"

namespace accel::tensor {

struct BackwardOptions : BackwardSettings {
  std::optional<std::vector<at::Tensor>> inputs = {};  // only these leaves get gradients
  at::Tensor gradient = {};                            // of the tensor; undefined: 1, for a tensor with one element
};

// Throws if a backward cannot start from the tensor: kShapeMismatch for the shape, kInvalidArgument for inputs.
void check_backward(const at::Tensor& tensor, const BackwardOptions& options);

// Runs backward from a checked tensor. `seed`, if defined, replaces the options' gradient.
void backward(const at::Tensor& tensor, const BackwardOptions& options, const at::Tensor& seed = {});

// Runs one backward from several tensors, with the gradient of each.
void backward(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& gradients);

// Maps gradients to those that replace them; an undefined one means none.
using GradientFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& gradients)>;

// Returns the tensors with a hook that gets all their gradients at once in each backward. Each must require a gradient.
std::vector<at::Tensor> watch_gradients(const std::vector<at::Tensor>& tensors, GradientFunction function);

}  // namespace accel::tensor
