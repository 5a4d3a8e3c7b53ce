// SPDX-License-Identifier: Apache-2.0
// Optimizer of parameter groups: manages groups, gradients, the state of each parameter and the state dict. An update
// rule computes the updates.
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "optim/open_step.hpp"
#include "optim/optimizer.hpp"
#include "optim/rules/update_rule.hpp"
#include "optim/settings.hpp"

namespace accel::optim {

// A parameter and a gradient of the same dtype and memory layout: kernels can treat both as flat arrays.
struct ParameterGradient {
  size_t index;
  at::Tensor parameter;
  at::Tensor gradient;
};

class ParameterOptimizer final : public Optimizer {
 public:
  // `settings` may have "lr", "weight_decay" and the rule's; missing ones have the rule's defaults.
  ParameterOptimizer(std::unique_ptr<const UpdateRule> rule, const GivenSettings& settings);

  bool step() override;
  bool step_unless(const std::shared_ptr<precision::OverflowFlag>& overflow) override;
  bool step_was_skipped() const override { return progress_.latest.was_skipped(); }
  bool step_by(const Closure& closure) override;
  void zero_grad(bool set_to_none) override;
  void train(bool training) override;
  const std::vector<ParameterGroup>& groups() const override { return groups_; }
  ParameterGroup& group(size_t index) override;
  void add_group(std::vector<at::Tensor> parameters, std::optional<double> lr,
                 std::optional<double> weight_decay) override;
  c10::ArrayRef<Setting> settings() const override { return rule_->settings(); }
  c10::IValue state_dict() const override;
  void load_state_dict(const c10::IValue& state_dict) override;
  bool is_elementwise() const override { return rule_->is_elementwise(); }
  std::optional<bool> is_like_parameter(std::string_view entry) const override;
  int64_t state_bytes() const override;
  int64_t expected_state_bytes(const at::Tensor& parameter) const override;
  void write_device_rates() override;
  void check_settings(const ParameterGroup& group) const override { rule_->check(group); }

  const UpdateRule& rule() const { return *rule_; }
  // For updates that a device has recorded and does again: a number that changes when other tensors become the state,
  // of which the recorded update knows nothing. Nothing where the host counts the updates and so must do them.
  std::optional<uint64_t> number_of_repeatable_state() const;
  // Updates one parameter with its gradient, for rules that update in backward. `parameter` is the index in the group.
  void update_one(size_t group, size_t parameter);

 private:
  bool counts_on_host() const;
  void update_in_windows(const ParameterGroup& group, c10::ArrayRef<ParameterGradient> pairs);
  // Entries of one group that share a device and a dtype.
  void update(const ParameterGroup& group, c10::ArrayRef<ParameterGradient> pairs);
  // Creates or converts the state of a parameter as this step needs it. True if an entry is new.
  bool prepare_state(const ParameterGroup& group, const ParameterGradient& pair);

  std::unique_ptr<const UpdateRule> rule_;
  ParameterGroup defaults_;  // without parameters
  std::vector<ParameterGroup> groups_;
  // The parameters of all groups and how far they are.
  struct Progress {
    std::vector<at::Tensor> parameters;
    std::vector<ParameterState> states;  // of each parameter
    OpenStep latest;
    uint64_t state_number = 0;
  };
  mutable Progress progress_;
};

}  // namespace accel::optim
