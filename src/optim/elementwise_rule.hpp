// Rules that treat every element alike: a formula of kernels/, and its numbers for each step.
#pragma once

#include "kernels/list_update.hpp"
#include "kernels/update_job.hpp"
#include "optim/update_rule.hpp"

namespace accel::optim {

class ElementwiseRule : public UpdateRule {
 public:
  bool rounds() const final { return true; }
  void update(const ParameterGroup& group, c10::ArrayRef<Update> updates) const override;

 protected:
  using UpdateRule::UpdateRule;
  using Numbers = double (&)[kernels::kNumNumbers];

  virtual kernels::Formula formula(const ParameterGroup& group) const = 0;
  // Called once for each parameter and step. What is not set leaves the parameter and the gradient as they are.
  virtual void set_numbers(const ParameterGroup& group, const Update& update, Numbers numbers) const = 0;
  // Anything but the CPU.
  virtual void update_on_device(const ParameterGroup& group, c10::ArrayRef<Update> updates) const;

  // The numbers of weight decay of both kinds, and of the direction.
  static void set_decay(const ParameterGroup& group, bool decoupled, bool maximize, Numbers numbers);
  kernels::UpdateJob make_job(const ParameterGroup& group, const Update& update) const;
  kernels::ListUpdate make_lists(const ParameterGroup& group, c10::ArrayRef<Update> updates) const;
};

}  // namespace accel::optim
