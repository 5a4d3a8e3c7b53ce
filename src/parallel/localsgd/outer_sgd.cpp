// SPDX-License-Identifier: Apache-2.0
#include "parallel/localsgd/outer_sgd.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_sub.h>

#include "base/error.hpp"
#include "optim/rules/rules.hpp"
#include "optim/settings.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {

namespace {

constexpr double kDilocoMomentum = 0.9;

optim::GivenSettings sgd_settings(const LocalSgdSettings& settings) {
  const double momentum = settings.outer_momentum.value_or(kDilocoMomentum);
  const bool nesterov = settings.outer_nesterov.value_or(momentum > 0);
  return {{"lr", *settings.outer_lr}, {"momentum", momentum}, {"nesterov", nesterov ? 1.0 : 0.0}};
}

}  // namespace

OuterSgd::OuterSgd(const LocalSgdSettings& settings, const std::vector<at::Tensor>& weights)
    : optimizer_(optim::sgd_rule(), sgd_settings(settings)) {
  for (const at::Tensor& weight : weights) averaged_.push_back(weight.detach().clone().requires_grad_(true));
  optimizer_.add_group(averaged_, std::nullopt, std::nullopt);
}

void OuterSgd::apply(const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& means) {
  const at::NoGradGuard no_grad;
  const auto ways = at::_foreach_sub(averaged_, means);
  for (size_t i = 0; i < averaged_.size(); i++) averaged_[i].mutable_grad() = ways[i];
  optimizer_.step();
  for (const at::Tensor& weight : averaged_) weight.mutable_grad().reset();
  at::_foreach_copy_(weights, averaged_);
}

c10::IValue OuterSgd::state_dict() const {
  auto state = tree::new_map();
  auto weights = tree::new_list();
  for (const at::Tensor& weight : averaged_) weights.push_back(weight.detach());
  state.insert("weights", weights);
  state.insert("optimizer", optimizer_.state_dict());
  return state;
}

void OuterSgd::load_state_dict(const c10::IValue& state_dict) {
  const optim::Map state = optim::as_map(state_dict, "the state of an outer step");
  const c10::IValue* const saved = optim::find(state, "weights");
  const c10::IValue* const optimizer = optim::find(state, "optimizer");
  const bool fits =
      saved != nullptr && tree::is_sequence(*saved) && tree::sequence_items(*saved).size() == averaged_.size();
  require(fits && optimizer != nullptr, Status::kInvalidArgument, "the state of an outer step has no \"weights\" for ",
          averaged_.size(), " parameters, or no \"optimizer\"");
  for (size_t i = 0; i < averaged_.size(); i++) {
    const c10::IValue& weight = tree::sequence_items(*saved)[i];
    require(weight.isTensor() && weight.toTensor().sizes() == averaged_[i].sizes(), Status::kShapeMismatch, "weight ",
            i, " of an outer step is not a tensor of shape ", averaged_[i].sizes());
  }
  optimizer_.load_state_dict(*optimizer);
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < averaged_.size(); i++) averaged_[i].copy_(tree::sequence_items(*saved)[i].toTensor());
}

}  // namespace accel::parallel
