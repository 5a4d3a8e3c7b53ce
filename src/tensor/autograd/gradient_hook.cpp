// SPDX-License-Identifier: Apache-2.0
#include "tensor/autograd/gradient_hook.hpp"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <utility>

namespace accel::tensor {

struct GradientHook::Accumulator {
  using NodePtr = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));

  explicit Accumulator(const at::Tensor& parameter) : node(torch::autograd::impl::grad_accumulator(parameter)) {}
  ~Accumulator() {
    if (hook != 0) node->del_post_hook(hook);
  }
  Accumulator(const Accumulator&) = delete;
  Accumulator& operator=(const Accumulator&) = delete;

  NodePtr node;
  uintptr_t hook = 0;
};

GradientHook::GradientHook(const at::Tensor& parameter) : accumulator_(std::make_unique<Accumulator>(parameter)) {}
GradientHook::~GradientHook() = default;
GradientHook::GradientHook(GradientHook&&) noexcept = default;
GradientHook& GradientHook::operator=(GradientHook&&) noexcept = default;

void GradientHook::set(std::function<void()> arrived) {
  accumulator_->hook = accumulator_->node->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
      [arrived = std::move(arrived)](const torch::autograd::variable_list& outputs,
                                     const torch::autograd::variable_list&) {
        arrived();
        return outputs;
      }));
}

const torch::autograd::Node* GradientHook::node() const { return accumulator_->node.get(); }

}  // namespace accel::tensor
