// SPDX-License-Identifier: Apache-2.0
// Learning-rate scheduler: sets the rates of an optimizer by a schedule, as torch.optim.lr_scheduler's classes do.
#pragma once

#include "optim/schedules/schedule.hpp"
#include "optim/schedules/scheduler.hpp"

namespace accel::optim {

// The constructor is step 0 and sets the rates. Groups that are added to the optimizer later join at the next step.
class LrScheduler final : public SchedulerPart {
 public:
  LrScheduler(std::shared_ptr<Optimizer> optimizer, Schedule schedule);

  void step() override;
  void count_step() override { step_count_ += 1; }
  bool has_ended() const override { return schedule_.total_steps && step_count_ > *schedule_.total_steps; }
  const std::shared_ptr<Optimizer>& optimizer() const override { return optimizer_; }
  const std::vector<double>& last_lrs() const override { return last_lrs_; }
  c10::IValue state_dict() const override;
  void load_state_dict(const c10::IValue& state_dict) override;
  std::shared_ptr<Scheduler> copy_for(std::shared_ptr<Optimizer> optimizer) const override;

  void begin() override;
  void restart() override;
  void take_back() override { last_epoch_ -= 1; }

 private:
  void move_to(int64_t step, bool first, std::vector<double> lrs);
  std::vector<double> present_lrs() const;
  double base_of(const ParameterGroup& group) const;
  void warn_of_other_settings(const Map& loaded) const;

  std::shared_ptr<Optimizer> optimizer_;
  Schedule schedule_;
  int64_t last_epoch_ = 0;  // torch's name for the step
  int64_t step_count_ = 0;
  std::vector<double> base_lrs_;
  std::vector<double> last_lrs_;
};

}  // namespace accel::optim
