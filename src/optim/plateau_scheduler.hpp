// Reduces the rates when a metric does not get better any more, as torch's ReduceLROnPlateau.
#pragma once

#include "optim/scheduler.hpp"

namespace accel::optim {

enum class MetricMode { kMin, kMax };               // what is better
enum class ThresholdMode { kRelative, kAbsolute };  // to the best value

struct PlateauSettings {
  MetricMode mode = MetricMode::kMin;
  double factor = 0.1;
  int64_t patience = 10;
  double threshold = 1e-4;
  ThresholdMode threshold_mode = ThresholdMode::kRelative;
  int64_t cooldown = 0;
  double min_lr = 0;
  double eps = 1e-8;
};

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
