// The kinds of optimizers, and how one is made: `make_optimizer(adam_rule(true), {{"lr", 1e-3}})`. Settings are named
// in the tables of the sources, as torch.optim names them.
#pragma once

#include <functional>
#include <memory>

#include "optim/parameter_optimizer.hpp"
#include "optim/update_rule.hpp"

namespace accel::optim {

using RulePtr = std::unique_ptr<const UpdateRule>;

// Where the weight decay of Adam enters.
enum class WeightDecay { kInGradient, kDecoupled };  // Adam, AdamW

// Stochastic gradient descent with momentum.
RulePtr sgd_rule();
RulePtr adam_rule(WeightDecay decay);
// AdamW with moments of a byte an element.
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

// One update of one parameter by the host: its tensors are changed in place.
struct HostUpdate {
  at::Tensor parameter;
  at::Tensor gradient;
  std::vector<at::Tensor> states;
  int64_t step;
  double lr;
  double weight_decay;
};
RulePtr host_rule(std::vector<std::string> state_names, std::function<void(const HostUpdate&)> update);

// Without groups.
inline std::shared_ptr<ParameterOptimizer> make_optimizer(RulePtr rule, const GivenSettings& settings = {}) {
  return std::make_shared<ParameterOptimizer>(std::move(rule), settings);
}

}  // namespace accel::optim
