// SPDX-License-Identifier: Apache-2.0
// Elementwise update rules: an update kernel and its scalars for each step.
#pragma once

#include "kernels/update/foreach_update.hpp"
#include "kernels/update/update_arguments.hpp"
#include "optim/rules/update_rule.hpp"

namespace accel::optim {

class ElementwiseRule : public UpdateRule {
 public:
  bool rounds() const final { return true; }
  bool is_elementwise() const override { return true; }
  bool records_numbers() const override { return true; }
  void update(const ParameterGroup& group, c10::ArrayRef<Update> updates) const override;

 protected:
  using UpdateRule::UpdateRule;
  using Scalars = double (&)[kernels::kNumScalars];

  virtual kernels::UpdateKernel kernel(const ParameterGroup& group) const = 0;
  // Called once for each parameter and step. The initial values leave the parameter and the gradient unchanged.
  virtual void set_scalars(const ParameterGroup& group, const Update& update, Scalars scalars) const = 0;
  // For all devices but the CPU.
  virtual void update_on_device(const ParameterGroup& group, c10::ArrayRef<Update> updates) const;
  virtual void run_on_device(const ParameterGroup& group, const kernels::ForeachUpdate& lists) const;

  // The scalars of weight decay of both kinds, and of the direction.
  static void set_decay(const ParameterGroup& group, bool decoupled, bool maximize, Scalars scalars);
  kernels::UpdateArguments make_arguments(const ParameterGroup& group, const Update& update) const;
  kernels::ForeachUpdate make_lists(const ParameterGroup& group, c10::ArrayRef<Update> updates) const;

 private:
  // A device that records updates takes lists of parameters that share all scalars.
  void record_on_device(const ParameterGroup& group, c10::ArrayRef<Update> updates) const;
};

}  // namespace accel::optim
