// SPDX-License-Identifier: Apache-2.0
#include "nn/deferred_products.hpp"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include <mutex>
#include <optional>
#include <utility>

#include "tensor/autograd/autograd_node.hpp"
#include "tensor/autograd/backward.hpp"

namespace accel::nn {
namespace {

thread_local const DeferredProducts::Scope* innermost_products = nullptr;

at::Tensor rows_of(const at::Tensor& tensor) { return tensor.reshape({-1, tensor.size(-1)}); }

// Whether a hook receives the parameter's gradient, or changes it.
bool has_hooks(const at::Tensor& parameter) {
  namespace impl = torch::autograd::impl;
  if (!impl::hooks(parameter).empty() || impl::post_acc_grad_hooks(parameter) != nullptr) return true;
  const auto accumulator = impl::try_get_grad_accumulator(parameter);
  return accumulator != nullptr && (!accumulator->pre_hooks().empty() || !accumulator->post_hooks().empty());
}

// Adds the product to the parameter's gradient, without memory for the product. False if that is autograd's to do.
bool add_in_place(const at::Tensor& parameter, const at::Tensor& left, const at::Tensor& right) {
  if (has_hooks(parameter) || !parameter.is_contiguous() || left.scalar_type() != parameter.scalar_type()) return false;
  at::Tensor& sum = parameter.mutable_grad();
  if (!sum.defined()) {
    sum = at::mm(left, right);
    return true;
  }
  if (sum.layout() != at::kStrided || sum.scalar_type() != parameter.scalar_type() || sum.requires_grad()) return false;
  sum.addmm_(left, right);
  return true;
}

// In which type autocast computes products on this thread; nothing if it is off.
std::optional<at::ScalarType> half_dtype(c10::DeviceType device) {
  if (!at::autocast::is_autocast_available(device) || !at::autocast::is_autocast_enabled(device)) return std::nullopt;
  return at::autocast::get_autocast_dtype(device);
}

// Autocast casts so what a product takes.
at::Tensor cast(const at::Tensor& tensor, std::optional<at::ScalarType> half) {
  const bool stays = !half || !tensor.defined() || !tensor.is_floating_point() || tensor.scalar_type() == at::kDouble;
  if (stays) return tensor;
  // The mark of what autocast casts itself, by which casts are cached.
  const c10::impl::ExcludeDispatchKeyGuard in_autocast(
      at::autocast::get_autocast_dispatch_key_from_device_type(tensor.device().type()));
  return tensor.to(*half);
}

bool is_parameter(const at::Tensor& tensor) { return tensor.requires_grad() && tensor.is_leaf(); }

}  // namespace

struct DeferredProduct final : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::Tensor& gradient = gradients[0];
    if (!gradient.defined()) return torch::autograd::variable_list(next_edges().size());
    const at::Tensor factor = saved_factor.unpack();
    products->pending_.push_back({saved_input.unpack(), gradient, weight, bias, output_dim});
    if (next_edges().empty()) return {};
    return {at::matmul(gradient, output_dim == 0 ? factor : factor.t())};
  }
  void release_variables() override {
    saved_input.reset_data();
    saved_factor.reset_data();
  }
  std::string name() const override { return "DeferredProduct"; }

  std::shared_ptr<DeferredProducts> products;
  torch::autograd::SavedVariable saved_input, saved_factor;  // the weight, or the cast of it
  at::Tensor weight, bias;
  int64_t output_dim = 0;
};

namespace {

using LinearOperator = at::_ops::linear;

// linear() is a composite: the kernel for autograd, which differentiates nothing itself, is where it can be asked.
at::Tensor linear(c10::DispatchKeySet keys, const at::Tensor& input, const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias) {
  const at::Tensor no_bias;
  const at::Tensor& given_bias = bias ? *bias : no_bias;
  if (const auto products = DeferredProducts::of(weight, given_bias))
    return products->multiply(input, weight, given_bias, 0);
  constexpr c10::DispatchKeySet kBelow(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::AutogradCPU);
  return LinearOperator::redispatch(keys & kBelow, input, weight, bias);
}

// Never destroyed: operators may run while the process ends.
torch::Library& linear_of_autograd() {
  static torch::Library& library =
      *std::make_unique<torch::Library>(torch::Library::IMPL, "aten", c10::DispatchKey::AutogradCPU, __FILE__, __LINE__)
           .release();
  return library;
}

}  // namespace

std::shared_ptr<DeferredProducts> DeferredProducts::create() {
  static std::once_flag once;
  std::call_once(once, [] { linear_of_autograd().impl("linear", TORCH_FN(linear)); });
  return std::make_shared<DeferredProducts>();
}

DeferredProducts::Scope::Scope(std::shared_ptr<DeferredProducts> products)
    : products_(std::move(products)), outer_(innermost_products) {
  innermost_products = this;
}

DeferredProducts::Scope::~Scope() { innermost_products = outer_; }

std::shared_ptr<DeferredProducts> DeferredProducts::of(const at::Tensor& weight, const at::Tensor& bias) {
  if (innermost_products == nullptr || !at::GradMode::is_enabled()) return nullptr;
  if (weight.dim() != 2 || !is_parameter(weight) || (bias.defined() && !is_parameter(bias))) return nullptr;
  return innermost_products->products_;
}

at::Tensor DeferredProducts::multiply(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                                      int64_t output_dim) {
  const std::optional<at::ScalarType> half = half_dtype(weight.device().type());
  const at::Tensor rows = cast(input, half);  // recorded
  at::Tensor output, factor;
  {
    const at::NoGradGuard not_recorded;
    factor = cast(weight, half);
    output = at::linear(rows, output_dim == 0 ? factor : factor.t(), cast(bias, half));
  }
  const auto node = tensor::make_autograd_node<DeferredProduct>();
  node->products = shared_from_this();
  node->saved_input = torch::autograd::SavedVariable(rows, /*is_output=*/false);
  node->saved_factor = torch::autograd::SavedVariable(factor, /*is_output=*/false);
  node->weight = weight;
  node->bias = bias;
  node->output_dim = output_dim;
  if (rows.requires_grad()) node->set_next_edges({torch::autograd::impl::gradient_edge(rows)});
  torch::autograd::set_history(output, node);
  return output;
}

void DeferredProducts::complete() {
  std::vector<at::Tensor> parameters, gradients;
  {
    const at::NoGradGuard not_recorded;
    for (Pending& pending : std::exchange(pending_, {})) {
      const at::Tensor input = rows_of(pending.input), gradient = rows_of(pending.gradient);
      const bool is_transposed = pending.output_dim != 0;
      const at::Tensor left = is_transposed ? input.t() : gradient.t(), right = is_transposed ? gradient : input;
      if (!add_in_place(pending.weight, left, right)) {
        parameters.push_back(pending.weight);
        gradients.push_back(at::mm(left, right).to(pending.weight.scalar_type()));
      }
      if (pending.bias.defined()) {
        parameters.push_back(pending.bias);
        gradients.push_back(gradient.sum(0).to(pending.bias.scalar_type()));
      }
      pending = {};
    }
  }
  if (!parameters.empty()) tensor::backward(parameters, gradients);
}

}  // namespace accel::nn
