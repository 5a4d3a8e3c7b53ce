// SPDX-License-Identifier: Apache-2.0
// Gradient hook: calls a function in each backward when the gradient of a parameter is complete.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace torch::autograd {
struct Node;
}

namespace accel::tensor {

// Keeps the node with which autograd accumulates the gradient, so that each forward finds the same one.
class GradientHook {
 public:
  // The node describes the gradient that it expects by the data that the parameter has now.
  explicit GradientHook(const at::Tensor& parameter);
  ~GradientHook();
  GradientHook(GradientHook&&) noexcept;
  GradientHook& operator=(GradientHook&&) noexcept;
  GradientHook(const GradientHook&) = delete;
  GradientHook& operator=(const GradientHook&) = delete;

  // Once. `arrived` is called on any of autograd's threads.
  void set(std::function<void()> arrived);
  const torch::autograd::Node* node() const;

 private:
  struct Accumulator;

  std::unique_ptr<Accumulator> accumulator_;
};

}  // namespace accel::tensor
