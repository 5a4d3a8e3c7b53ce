// SPDX-License-Identifier: Apache-2.0
// Scheduler: the interface of learning-rate schedulers.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "optim/optimizer.hpp"
#include "tensor/stateful.hpp"

namespace accel::optim {

// The wrapped scheduler, for the accelerator's.
class Scheduler : public tensor::Stateful {
 public:
  virtual void step() = 0;
  // Advances by one step with a metric; an error for schedulers that take none.
  virtual void step_metric(double metric);
  // Counts a step without changing the rates: gradients still accumulate.
  virtual void count_step() = 0;
  // Whether a schedule with an end has reached it.
  virtual bool has_ended() const { return false; }

  virtual const std::shared_ptr<Optimizer>& optimizer() const = 0;
  // The rates of the groups after the latest step.
  virtual const std::vector<double>& last_lrs() const = 0;
  // An invalid group is an error.
  double last_lr(size_t group) const;

  // With the keys of torch.optim.lr_scheduler, so that either can load the other's. Loading checks everything before it
  // changes anything, and sets the optimizer's rates.
  c10::IValue state_dict() const override = 0;
  void load_state_dict(const c10::IValue& state_dict) override = 0;

  // A copy of the scheduler, at the same step, for an optimizer whose groups have the same rates.
  virtual std::shared_ptr<Scheduler> copy_for(std::shared_ptr<Optimizer> optimizer) const = 0;
};

// A scheduler that can be a part of a composed one.
class SchedulerPart : public Scheduler {
 public:
  // Step 0, from the current rates.
  virtual void begin() = 0;
  // Step 0, from the initial rates.
  virtual void restart() = 0;
  // Undoes step 0: the part starts later.
  virtual void take_back() = 0;
};

// The rates of the next `steps` steps: a float64 tensor [steps, groups], beginning with the current ones. Changes
// neither the scheduler nor its optimizer.
at::Tensor learning_rate_curve(const Scheduler& scheduler, int64_t steps);

}  // namespace accel::optim
