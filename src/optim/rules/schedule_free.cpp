// SPDX-License-Identifier: Apache-2.0
// Schedule-free SGD and AdamW (Defazio et al., "The Road Less Scheduled", 2024). Gradients are taken at y between the
// iterate z and the average x of all iterates; y is the parameter in training, x in evaluation, and only z is stored:
//   y = (1 - beta) z + beta x,  z -= lr * gradient(y),  x = (1 - share) x + share * z
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "config/generated/option_tables.hpp"
#include "optim/rules/elementwise_rule.hpp"
#include "optim/rules/rules.hpp"

namespace accel::optim {
namespace {

using kernels::UpdateKernel;

class ScheduleFreeRule : public ElementwiseRule {
 public:
  c10::ArrayRef<StateEntry> state_entries() const override { return state_entries_; }
  void check(const ParameterGroup& group) const override {
    require(group.values[kBeta1] > 0, Status::kInvalidArgument, settings()[kBeta1].name, " is ", group.values[kBeta1],
            "; expected a number in (0, 1): schedule-free training has no average otherwise");
  }
  // With y = (1 - beta) z + beta x: x is 1 - 1 / beta of the way from y to z, and y is 1 - beta of that from x.
  std::optional<Modes> modes(const ParameterGroup& group) const override {
    const double beta = group.values[kBeta1];
    return Modes{kMode, 1 - 1 / beta, 1 - beta};
  }

 protected:
  // Indices of the settings that both begin with.
  enum : size_t { kBeta1, kWarmupSteps, kPower, kLrPower, kMaximize, kMode, kOwn };

  // `first` is the weight of the average; `further` are settings after the common ones.
  ScheduleFreeRule(const OptionTable& options, Setting first, const std::vector<Setting>& further,
                   const std::vector<StateEntry>& moments)
      : ElementwiseRule(options, {first, {"warmup_steps"}, {"r"}, {"weight_lr_power"}, {"maximize"}, {kTrainMode}},
                        further) {
    state_entries_.push_back({"z"});
    state_entries_.back().is_copy = true;
    state_entries_.insert(state_entries_.end(), moments.begin(), moments.end());
    largest_lr_ = state_entries_.size();
    state_entries_.push_back({"lr_max", StateEntry::Kind::kNumber, 0});
    state_entries_.push_back({"weight_sum", StateEntry::Kind::kNumber, 0});
  }

  void set_shares(const ParameterGroup& group, const Update& update, Scalars scalars) const {
    const auto& values = group.values;
    const double step = update.step();
    const double lr = group.lr * (step <= values[kWarmupSteps] ? step / values[kWarmupSteps] : 1);
    auto& largest_lr = *update.state_tensor(largest_lr_).mutable_data_ptr<float>();
    auto& weights = *update.state_tensor(largest_lr_ + 1).mutable_data_ptr<float>();
    largest_lr = std::max(largest_lr, static_cast<float>(lr));
    const double weight = std::pow(step, values[kPower]) * std::pow(double{largest_lr}, values[kLrPower]);
    const double sum = double{weights} + weight;
    weights = static_cast<float>(sum);
    const double share = sum > 0 ? weight / sum : 0;
    scalars[kernels::kSign] = values[kMaximize] != 0 ? -1 : 1;
    scalars[kernels::kDecay] = group.weight_decay;
    scalars[kernels::kRate] = lr;
    scalars[kernels::kShare1] = share;
    scalars[kernels::kShare2] = lr * (1 - values[kBeta1] * (1 - share));
  }

 private:
  std::vector<StateEntry> state_entries_;
  size_t largest_lr_;
};

class ScheduleFreeSgdRule final : public ScheduleFreeRule {
 public:
  ScheduleFreeSgdRule() : ScheduleFreeRule(option_tables::schedule_free_sgd_options, {"momentum"}, {}, {}) {}

 protected:
  UpdateKernel kernel(const ParameterGroup&) const override { return UpdateKernel::kScheduleFreeSgd; }
  void set_scalars(const ParameterGroup& group, const Update& update, Scalars scalars) const override {
    set_shares(group, update, scalars);
  }
};

class ScheduleFreeAdamwRule final : public ScheduleFreeRule {
 public:
  ScheduleFreeAdamwRule()
      : ScheduleFreeRule(option_tables::schedule_free_adamw_options, {"beta1"}, {{"beta2"}, {"eps"}},
                         {{"exp_avg_sq"}}) {}

 protected:
  enum : size_t { kBeta2 = kOwn, kEps };

  UpdateKernel kernel(const ParameterGroup&) const override { return UpdateKernel::kScheduleFreeAdam; }
  void set_scalars(const ParameterGroup& group, const Update& update, Scalars scalars) const override {
    set_shares(group, update, scalars);
    const double beta2 = group.values[kBeta2];
    scalars[kernels::kBeta2] = beta2;
    scalars[kernels::kRest2] = 1 - beta2;
    scalars[kernels::kScale] = 1 / std::sqrt(1 - std::pow(beta2, update.step()));
    scalars[kernels::kEps] = group.values[kEps];
  }
};

}  // namespace

RulePtr schedule_free_sgd_rule() { return std::make_unique<ScheduleFreeSgdRule>(); }
RulePtr schedule_free_adamw_rule() { return std::make_unique<ScheduleFreeAdamwRule>(); }

}  // namespace accel::optim
