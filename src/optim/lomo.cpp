// SPDX-License-Identifier: Apache-2.0
#include "optim/lomo.hpp"

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <mutex>
#include <utility>

#include "base/error.hpp"
#include "optim/clip.hpp"
#include "optim/rules/rules.hpp"
#include "tensor/device/device_threads.hpp"

namespace accel::optim {
namespace {

namespace autograd = torch::autograd;
using GradientFunction = std::function<void(const at::Tensor& parameter)>;

class Hook final : public autograd::PostAccumulateGradHook {
 public:
  explicit Hook(GradientFunction function) : function_(std::move(function)) {}
  void operator()(const autograd::Variable& parameter) override { function_(parameter); }

 private:
  GradientFunction function_;
};

// A parameter has only one such hook: the former one is restored at the end.
class HookScope {
 public:
  HookScope(const at::Tensor& parameter, GradientFunction function) : parameter_(parameter) {
    std::swap(before_, autograd::impl::post_acc_grad_hooks(parameter_));
    autograd::impl::set_post_acc_grad_hooks(parameter_, std::make_unique<Hook>(std::move(function)));
  }
  ~HookScope() { autograd::impl::post_acc_grad_hooks(parameter_) = std::move(before_); }
  HookScope(const HookScope&) = delete;
  HookScope& operator=(const HookScope&) = delete;

 private:
  at::Tensor parameter_;
  std::unique_ptr<autograd::PostAccumulateGradHook> before_;
};

// Sets the learning rate temporarily.
class RateScope {
 public:
  RateScope(ParameterOptimizer& optimizer, double lr) : optimizer_(optimizer) {
    for (size_t group = 0; group < optimizer.groups().size(); ++group)
      before_.push_back(std::exchange(optimizer.group(group).lr, lr));
  }
  // The groups are those of the constructor, so none is out of range.
  ~RateScope() {  // NOLINT(bugprone-exception-escape)
    for (size_t group = 0; group < before_.size(); ++group) optimizer_.group(group).lr = before_[group];
  }
  RateScope(const RateScope&) = delete;
  RateScope& operator=(const RateScope&) = delete;

 private:
  ParameterOptimizer& optimizer_;
  std::vector<double> before_;
};

// Backward that passes each gradient of the optimizers' parameters, or its mean over the ranks, to a function.
void backward(const std::vector<ParameterOptimizer*>& optimizers, const at::Tensor& loss, bool keeps_graph,
              const GradientMean& mean,
              const std::function<void(ParameterOptimizer&, size_t group, size_t parameter)>& take) {
  std::vector<std::unique_ptr<HookScope>> hooks;
  for (ParameterOptimizer* const optimizer : optimizers)
    for (size_t group = 0; group < optimizer->groups().size(); ++group) {
      const auto& parameters = optimizer->groups()[group].parameters;
      for (size_t i = 0; i < parameters.size(); ++i) {
        if (!parameters[i].requires_grad()) continue;
        hooks.push_back(
            std::make_unique<HookScope>(parameters[i], [&take, &mean, optimizer, group, i](const at::Tensor& tensor) {
              if (mean) {
                tensor.mutable_grad() = tensor.grad().contiguous();
                mean(tensor.grad());
              }
              take(*optimizer, group, i);
              tensor.mutable_grad().reset();
            }));
      }
    }
  tensor::start_device_threads();
  autograd::backward({loss}, {}, keeps_graph);
}

// The clipping factor of an optimizer's gradients, for the limit of its first group that has one; undefined without a
// limit. It stays on the device of the loss: the host does not wait for it.
at::Tensor factor_of_norm(ParameterOptimizer& optimizer, const at::Tensor& loss, const GradientMean& mean) {
  double limit = std::nan("");
  for (size_t group = optimizer.groups().size(); group-- > 0;)
    if (const double own = optimizer.setting(group, "clip_grad_norm"); !std::isnan(own)) limit = own;
  if (std::isnan(limit)) return {};
  at::Tensor squares = at::zeros({}, loss.options().dtype(at::toOpMathType(loss.scalar_type())).requires_grad(false));
  std::mutex adding;  // each device has a thread of its own
  backward({&optimizer}, loss, /*keeps_graph=*/true, mean, [&](ParameterOptimizer& owner, size_t group, size_t i) {
    const at::NoGradGuard no_grad;
    const std::lock_guard<std::mutex> lock(adding);
    squares += at::linalg_vector_norm(owner.groups()[group].parameters[i].grad()).to(squares.options()).square_();
  });
  const at::NoGradGuard no_grad;
  return clip_factor(squares.sqrt_(), limit);
}

}  // namespace

bool is_lomo(const Optimizer& optimizer) {
  const auto* const own = dynamic_cast<const ParameterOptimizer*>(&optimizer);
  return own != nullptr && own->rule().updates_in_backward();
}

void lomo_backward(const std::vector<std::shared_ptr<Optimizer>>& optimizers, const at::Tensor& loss,
                   std::optional<double> lr, const GradientMean& mean) {
  require(loss.numel() == 1, Status::kShapeMismatch, "the loss has shape ", loss.sizes(),
          "; expected one element: take its mean or sum");
  require(loss.requires_grad(), Status::kInvalidState,
          "the loss has no gradient history; expected the result of operators on parameters, outside of no_grad");
  if (lr) check_setting("lr", {}, *lr);
  std::vector<ParameterOptimizer*> own;
  for (const auto& optimizer : optimizers) {
    require(is_lomo(*optimizer), Status::kInvalidArgument, "an optimizer is not LOMO; expected LOMO alone");
    own.push_back(static_cast<ParameterOptimizer*>(optimizer.get()));
  }
  std::vector<at::Tensor> factors;
  std::vector<std::unique_ptr<RateScope>> rates;
  for (ParameterOptimizer* const optimizer : own) {
    factors.push_back(factor_of_norm(*optimizer, loss, mean));
    if (lr) rates.push_back(std::make_unique<RateScope>(*optimizer, *lr));
  }
  backward(own, loss, /*keeps_graph=*/false, mean, [&](ParameterOptimizer& optimizer, size_t group, size_t i) {
    const at::NoGradGuard no_grad;
    const auto place = static_cast<size_t>(std::find(own.begin(), own.end(), &optimizer) - own.begin());
    const at::Tensor gradient = optimizer.groups()[group].parameters[i].grad();
    const double limit = optimizer.setting(group, "clip_grad_value");
    if (factors[place].defined()) gradient.mul_(factors[place].to(gradient.device()));
    if (!std::isnan(limit)) gradient.clamp_(-limit, limit);
    optimizer.update_one(group, i);
  });
}

}  // namespace accel::optim
