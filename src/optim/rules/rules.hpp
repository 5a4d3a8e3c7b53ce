// SPDX-License-Identifier: Apache-2.0
// Update rules of all optimizers: `make_optimizer(adam_rule(true), {{"lr", 1e-3}})`. Settings have the names of
// torch.optim.
#pragma once

#include <functional>
#include <memory>

#include "optim/parameter_optimizer.hpp"
#include "optim/rules/update_rule.hpp"

namespace accel::optim {

using RulePtr = std::unique_ptr<const UpdateRule>;

// Where the weight decay of Adam is applied.
enum class WeightDecay { kInGradient, kDecoupled };  // Adam, AdamW

// Stochastic gradient descent with momentum.
RulePtr sgd_rule();
RulePtr adam_rule(WeightDecay decay);
// AdamW with 8-bit moments.
RulePtr adamw_8bit_rule();
RulePtr nadam_rule();
RulePtr radam_rule();
RulePtr adamax_rule();
RulePtr adagrad_rule();
RulePtr rmsprop_rule();
RulePtr lion_rule();
RulePtr lamb_rule();
RulePtr adafactor_rule();
RulePtr muon_rule();
// SGD during backward, see lomo.hpp.
RulePtr lomo_rule();
// Adafactor without momentum during backward.
RulePtr adalomo_rule();
RulePtr schedule_free_sgd_rule();
RulePtr schedule_free_adamw_rule();

// Arguments of a user-defined update of one parameter, which changes the tensors in place.
struct CallbackUpdate {
  at::Tensor parameter;
  at::Tensor gradient;
  std::vector<at::Tensor> states;
  int64_t step;
  double lr;
  double weight_decay;
};
RulePtr callback_rule(std::vector<std::string> state_names, std::function<void(const CallbackUpdate&)> update);

// Without groups.
inline std::shared_ptr<ParameterOptimizer> make_optimizer(RulePtr rule, const GivenSettings& settings = {}) {
  return std::make_shared<ParameterOptimizer>(std::move(rule), settings);
}

}  // namespace accel::optim
