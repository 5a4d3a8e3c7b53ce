// SPDX-License-Identifier: Apache-2.0
// Plateau scheduler: reduces the rates when a metric has stopped improving, as torch's ReduceLROnPlateau.
#pragma once

#include "config/generated/settings/scheduler/plateau.hpp"
#include "optim/schedules/scheduler.hpp"

namespace accel::optim {

class PlateauScheduler final : public Scheduler {
 public:
  PlateauScheduler(std::shared_ptr<Optimizer> optimizer, const PlateauSettings& settings);

  void step() override;  // an error: it needs a metric
  void step_metric(double metric) override;
  void count_step() override {}
  const std::shared_ptr<Optimizer>& optimizer() const override { return optimizer_; }
  const std::vector<double>& last_lrs() const override { return last_lrs_; }
  c10::IValue state_dict() const override;
  void load_state_dict(const c10::IValue& state_dict) override;
  std::shared_ptr<Scheduler> copy_for(std::shared_ptr<Optimizer> optimizer) const override;

 private:
  double worst() const;
  bool is_better(double metric) const;
  void note_rates();

  std::shared_ptr<Optimizer> optimizer_;
  PlateauSettings settings_;
  double best_;
  int64_t last_epoch_ = 0;
  int64_t num_bad_epochs_ = 0;
  int64_t cooldown_counter_ = 0;
  std::vector<double> last_lrs_;
};

}  // namespace accel::optim
