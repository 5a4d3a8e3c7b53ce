// SPDX-License-Identifier: Apache-2.0
// Composed schedulers: schedulers of other schedulers of the same optimizer. @accelerate torch's ChainedScheduler,
// SequentialLR
#pragma once

#include "optim/schedules/scheduler.hpp"
#include "optim/settings.hpp"

namespace accel::optim {

using SchedulerParts = std::vector<std::shared_ptr<SchedulerPart>>;

// The parts of a composed scheduler; throws for one that cannot be a part, or belongs to another optimizer.
SchedulerParts scheduler_parts(const std::vector<std::shared_ptr<Scheduler>>& schedulers);

// Base class: has the parts; derived classes choose which part steps.
class ComposedScheduler : public SchedulerPart {
 public:
  void count_step() override {}  // torch counts only in the parts
  const std::shared_ptr<Optimizer>& optimizer() const override { return parts_.front()->optimizer(); }
  const std::vector<double>& last_lrs() const override { return last_lrs_; }
  c10::IValue state_dict() const override;
  void load_state_dict(const c10::IValue& state_dict) override;
  void restart() override;
  void take_back() override;

 protected:
  explicit ComposedScheduler(SchedulerParts parts) : parts_(std::move(parts)) {}

  const SchedulerParts& parts() const { return parts_; }
  void copy_parts_for(const std::shared_ptr<Optimizer>& optimizer);
  void note_rates();
  void reset_rates();  // to the initial ones

  // The state besides the parts and the rates.
  virtual void write_state(Map& state) const = 0;
  virtual void read_state(const Map& state) = 0;

 private:
  SchedulerParts parts_;
  std::vector<double> last_lrs_;
};

// All parts step together: their factors multiply.
class ChainedScheduler final : public ComposedScheduler {
 public:
  explicit ChainedScheduler(SchedulerParts parts);
  void step() override;
  void begin() override;
  std::shared_ptr<Scheduler> copy_for(std::shared_ptr<Optimizer> optimizer) const override;

 protected:
  void write_state(Map&) const override {}
  void read_state(const Map&) override {}
};

// The parts run one after the other: part i + 1 starts from the initial rate at milestones[i].
class SequentialScheduler final : public ComposedScheduler {
 public:
  SequentialScheduler(SchedulerParts parts, std::vector<int64_t> milestones);
  void step() override;
  void begin() override;
  std::shared_ptr<Scheduler> copy_for(std::shared_ptr<Optimizer> optimizer) const override;

 protected:
  void write_state(Map& state) const override;
  void read_state(const Map& state) override;

 private:
  SchedulerPart& part_at(int64_t step) const;

  std::vector<int64_t> milestones_;
  int64_t last_epoch_ = 0;
};

}  // namespace accel::optim
