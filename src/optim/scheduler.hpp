// Learning-rate schedulers: what they are to a training loop.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "optim/optimizer.hpp"
#include "tensor/stateful.hpp"

namespace accel::optim {

// The accelerator's scheduler wraps another one.
class Scheduler : public tensor::Stateful {
 public:
  virtual void step() = 0;
  // One step on with what was measured; an error for those that go by the steps alone.
  virtual void step_metric(double metric);
  // Counts a step in which the learning rates stay: gradients still accumulate.
  virtual void count_step() = 0;
  // Whether a schedule with an end has come to it; others never do.
  virtual bool has_ended() const { return false; }

  virtual const std::shared_ptr<Optimizer>& optimizer() const = 0;
  // The rates that the latest step set, of each group.
  virtual const std::vector<double>& last_lrs() const = 0;
  // A group that is not there is an error.
  double last_lr(size_t group) const;

  // With the keys of torch.optim.lr_scheduler, so that either can go on from the other's. Loading checks everything
  // before it changes anything, and gives the optimizer its rates.
  c10::IValue state_dict() const override = 0;
  void load_state_dict(const c10::IValue& state_dict) override = 0;

  // The same scheduler, at the same place, for an optimizer whose groups have the same rates.
  virtual std::shared_ptr<Scheduler> copy_for(std::shared_ptr<Optimizer> optimizer) const = 0;
};

// A scheduler that can be a part of another one.
class SchedulerPart : public Scheduler {
 public:
  // Step 0, from the rates that the optimizer has.
  virtual void begin() = 0;
  // Step 0, from the initial rates.
  virtual void restart() = 0;
  // Step 0 has not been: its turn comes later.
  virtual void take_back() = 0;
};

// The rates of the next `steps` steps, a float64 tensor [steps, groups] whose first row are the present rates. Neither
// the scheduler nor its optimizer changes.
at::Tensor learning_rate_curve(const Scheduler& scheduler, int64_t steps);

}  // namespace accel::optim
