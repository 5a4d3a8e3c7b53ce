// SPDX-License-Identifier: Apache-2.0
// Prepared scheduler: follows the updates of the optimizers.
#pragma once

#include <memory>
#include <vector>

#include "optim/schedules/scheduler.hpp"
#include "state/gradient_state.hpp"

namespace accel::accelerator {

struct SchedulerStepping {
  bool step_with_optimizer = true;
  int64_t steps_per_update = 1;
  // Stops at the end of a schedule. @accelerate "special case when using OneCycle"
  bool stop_at_end = true;
};

// A step behind an update of which only a device knows whether it was skipped is taken when the host reads it:
// before the next update, or before anything looks at the rates.
class PreparedScheduler final : public optim::Scheduler, public std::enable_shared_from_this<PreparedScheduler> {
 public:
  // Steps after these optimizers.
  PreparedScheduler(std::shared_ptr<optim::Scheduler> scheduler,
                    std::vector<std::shared_ptr<optim::Optimizer>> optimizers,
                    std::shared_ptr<const state::GradientState> gradient_state, const SchedulerStepping& stepping)
      : scheduler_(std::move(scheduler)),
        optimizers_(std::move(optimizers)),
        gradient_state_(std::move(gradient_state)),
        stepping_(stepping) {}

  // Linked to the optimizers: accounts for accumulation and skipped steps. @accelerate AcceleratedScheduler.step
  void step() override;
  // A metric is counted once, whatever the number of ranks.
  void step_metric(double metric) override;
  void count_step() override {
    settle();
    scheduler_->count_step();
  }
  bool has_ended() const override {
    settle();
    return scheduler_->has_ended();
  }
  const std::shared_ptr<optim::Optimizer>& optimizer() const override { return scheduler_->optimizer(); }
  const std::vector<double>& last_lrs() const override {
    settle();
    return scheduler_->last_lrs();
  }
  c10::IValue state_dict() const override {
    settle();
    return scheduler_->state_dict();
  }
  void load_state_dict(const c10::IValue& state_dict) override {
    settle();
    scheduler_->load_state_dict(state_dict);
  }
  // Not linked: each of its steps counts.
  std::shared_ptr<optim::Scheduler> copy_for(std::shared_ptr<optim::Optimizer> optimizer) const override;

 private:
  bool may_step();
  bool has_skipped_update() const;
  void advance() const;
  // Takes the step that waits.
  void settle() const;

  std::shared_ptr<optim::Scheduler> scheduler_;
  std::vector<std::shared_ptr<optim::Optimizer>> optimizers_;
  std::shared_ptr<const state::GradientState> gradient_state_;
  SchedulerStepping stepping_;
  mutable bool is_open_ = false;  // a step waits for updates
};

}  // namespace accel::accelerator
