// SPDX-License-Identifier: Apache-2.0
// Update rules of gradient descent: SGD with momentum (Sutskever et al., 2013), Lion (Chen et al., 2023), Adagrad
// (Duchi et al., 2011), RMSprop (Hinton, 2012; centred: Graves, 2013).
#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_sgd.h>

#include "base/error.hpp"
#include "config/generated/option_tables.hpp"
#include "optim/rules/elementwise_rule.hpp"
#include "optim/rules/rules.hpp"

namespace accel::optim {
namespace {

using kernels::UpdateKernel;
using Constant = UpdateRule::Constant;
using Value = UpdateRule::Constant::Value;

class SgdRule : public ElementwiseRule {
 public:
  SgdRule() : ElementwiseRule(option_tables::sgd_options, {{"momentum"}, {"dampening"}, {"nesterov"}, {"maximize"}}) {}
  c10::ArrayRef<Constant> constants() const override {
    static constexpr Constant kConstants[] = {
        {"foreach", Value::kNone}, {"differentiable", Value::kFalse}, {"fused", Value::kTrue}};
    return kConstants;
  }
  void check(const ParameterGroup& group) const override {
    require(group.values[kNesterov] == 0 || (group.values[kMomentum] > 0 && group.values[kDampening] == 0),
            Status::kInvalidArgument, "nesterov with momentum ", group.values[kMomentum], " and dampening ",
            group.values[kDampening], "; expected a momentum above 0 and no dampening");
  }
  c10::ArrayRef<StateEntry> state_entries() const override { return state_entries_; }
  bool needs(size_t, const ParameterGroup& group, const at::Tensor&) const override {
    return group.values[kMomentum] != 0;
  }
  bool counts_steps() const override { return false; }
  bool reads_overflow() const override { return true; }
  bool reads_device_rate() const override { return true; }

 protected:
  enum : size_t { kMomentum, kDampening, kNesterov, kMaximize };

  UpdateKernel kernel(const ParameterGroup& group) const override {
    return group.values[kMomentum] != 0 ? UpdateKernel::kSgdMomentum : UpdateKernel::kSgd;
  }
  void set_scalars(const ParameterGroup& group, const Update& update, Scalars scalars) const override {
    set_decay(group, false, group.values[kMaximize] != 0, scalars);
    scalars[kernels::kRate] = group.lr;
    scalars[kernels::kBeta1] = group.values[kMomentum];
    scalars[kernels::kRest1] = update.is_first ? 1 : 1 - group.values[kDampening];
    const bool nesterov = group.values[kNesterov] != 0;
    scalars[kernels::kShare1] = nesterov ? 1 : 0;
    scalars[kernels::kShare2] = nesterov ? group.values[kMomentum] : 1;
  }
  void update_on_device(const ParameterGroup& group, c10::ArrayRef<Update> updates) const override {
    for (const bool first : {true, false}) {  // the kernel wants lists of one kind
      std::vector<Update> alike;
      for (const Update& update : updates)
        if (update.is_first == first) alike.push_back(update);
      if (alike.empty()) continue;
      kernels::update_in_parts(make_lists(group, alike), 0, [&](const kernels::ForeachUpdate& lists) {
        const auto at_rate = [&](const auto& rate) {
          at::_fused_sgd_(lists.parameters, lists.gradients, lists.states[0], group.weight_decay,
                          group.values[kMomentum], rate, group.values[kDampening], group.values[kNesterov] != 0,
                          group.values[kMaximize] != 0, first, /*grad_scale=*/std::nullopt, alike[0].overflow_if_any());
        };
        if (group.device_rate) return at_rate(group.device_rate->value);
        at_rate(group.lr);
      });
    }
  }

 private:
  std::vector<StateEntry> state_entries_ = {
      {"momentum_buffer", StateEntry::Kind::kLikeParameter, 0, /*is_optional=*/true}};
};

class LionRule final : public ElementwiseRule {
 public:
  LionRule() : ElementwiseRule(option_tables::lion_options, {{"beta1", "betas"}, {"beta2", "betas"}, {"maximize"}}) {}
  c10::ArrayRef<StateEntry> state_entries() const override { return state_entries_; }
  bool counts_steps() const override { return false; }

 protected:
  enum : size_t { kBeta1, kBeta2, kMaximize };

  UpdateKernel kernel(const ParameterGroup&) const override { return UpdateKernel::kLion; }
  void set_scalars(const ParameterGroup& group, const Update&, Scalars scalars) const override {
    set_decay(group, true, group.values[kMaximize] != 0, scalars);
    scalars[kernels::kRate] = group.lr;
    scalars[kernels::kBeta1] = group.values[kBeta1];
    scalars[kernels::kRest1] = 1 - group.values[kBeta1];
    scalars[kernels::kBeta2] = group.values[kBeta2];
    scalars[kernels::kRest2] = 1 - group.values[kBeta2];
  }

 private:
  std::vector<StateEntry> state_entries_ = {{"exp_avg"}};
};

class AdagradRule final : public ElementwiseRule {
 public:
  AdagradRule()
      : ElementwiseRule(option_tables::adagrad_options,
                        {{"lr_decay"}, {"eps"}, {"initial_accumulator_value"}, {"maximize"}}) {}
  c10::ArrayRef<Constant> constants() const override {
    static constexpr Constant kConstants[] = {
        {"foreach", Value::kNone}, {"differentiable", Value::kFalse}, {"fused", Value::kNone}};
    return kConstants;
  }
  c10::ArrayRef<StateEntry> state_entries() const override { return state_entries_; }
  double initial(size_t, const ParameterGroup& group) const override { return group.values[kInitial]; }

 protected:
  enum : size_t { kLrDecay, kEps, kInitial, kMaximize };

  UpdateKernel kernel(const ParameterGroup&) const override { return UpdateKernel::kAdagrad; }
  void set_scalars(const ParameterGroup& group, const Update& update, Scalars scalars) const override {
    set_decay(group, false, group.values[kMaximize] != 0, scalars);
    scalars[kernels::kRate] = group.lr / (1 + (update.step() - 1) * group.values[kLrDecay]);
    scalars[kernels::kEps] = group.values[kEps];
  }

 private:
  std::vector<StateEntry> state_entries_ = {{"sum"}};
};

class RmspropRule final : public ElementwiseRule {
 public:
  RmspropRule()
      : ElementwiseRule(option_tables::rmsprop_options,
                        {{"alpha"}, {"eps"}, {"momentum"}, {"centered"}, {"maximize"}}) {}
  c10::ArrayRef<Constant> constants() const override {
    static constexpr Constant kConstants[] = {
        {"foreach", Value::kNone}, {"capturable", Value::kFalse}, {"differentiable", Value::kFalse}};
    return kConstants;
  }
  c10::ArrayRef<StateEntry> state_entries() const override { return state_entries_; }
  bool needs(size_t entry, const ParameterGroup& group, const at::Tensor&) const override {
    return entry == 0 || group.values[entry == 1 ? kCentered : kMomentum] != 0;
  }

 protected:
  enum : size_t { kAlpha, kEps, kMomentum, kCentered, kMaximize };

  UpdateKernel kernel(const ParameterGroup& group) const override {
    const bool momentum = group.values[kMomentum] != 0;
    if (group.values[kCentered] != 0)
      return momentum ? UpdateKernel::kRmsPropCenteredMomentum : UpdateKernel::kRmsPropCentered;
    return momentum ? UpdateKernel::kRmsPropMomentum : UpdateKernel::kRmsProp;
  }
  void set_scalars(const ParameterGroup& group, const Update&, Scalars scalars) const override {
    set_decay(group, false, group.values[kMaximize] != 0, scalars);
    scalars[kernels::kRate] = group.lr;
    scalars[kernels::kBeta1] = group.values[kMomentum];
    scalars[kernels::kBeta2] = group.values[kAlpha];
    scalars[kernels::kRest2] = 1 - group.values[kAlpha];
    scalars[kernels::kEps] = group.values[kEps];
  }

 private:
  std::vector<StateEntry> state_entries_ = {
      {"square_avg"},
      {"grad_avg", StateEntry::Kind::kLikeParameter, 0, /*is_optional=*/true},
      {"momentum_buffer", StateEntry::Kind::kLikeParameter, 0, /*is_optional=*/true}};
};

// LOMO updates during backward, with one gradient at a time, and has no state.
class LomoRule final : public ElementwiseRule {
 public:
  LomoRule() : ElementwiseRule(option_tables::lomo_options, {{"clip_grad_norm"}, {"clip_grad_value"}}) {}
  c10::ArrayRef<StateEntry> state_entries() const override { return {}; }
  bool counts_steps() const override { return false; }
  bool updates_in_backward() const override { return true; }
  bool records_numbers() const override { return false; }  // a thread of autograd updates

 protected:
  UpdateKernel kernel(const ParameterGroup&) const override { return UpdateKernel::kSgd; }
  void set_scalars(const ParameterGroup& group, const Update&, Scalars scalars) const override {
    set_decay(group, true, false, scalars);
    scalars[kernels::kRate] = group.lr;
  }
};

}  // namespace

RulePtr sgd_rule() { return std::make_unique<SgdRule>(); }
RulePtr lion_rule() { return std::make_unique<LionRule>(); }
RulePtr adagrad_rule() { return std::make_unique<AdagradRule>(); }
RulePtr rmsprop_rule() { return std::make_unique<RmspropRule>(); }
RulePtr lomo_rule() { return std::make_unique<LomoRule>(); }

}  // namespace accel::optim
