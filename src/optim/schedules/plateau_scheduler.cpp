// SPDX-License-Identifier: Apache-2.0
#include "optim/schedules/plateau_scheduler.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "optim/schedules/scheduler_state.hpp"
#include "tensor/tree.hpp"

namespace accel::optim {

PlateauScheduler::PlateauScheduler(std::shared_ptr<Optimizer> optimizer, const PlateauSettings& settings)
    : optimizer_(std::move(optimizer)), settings_(settings), best_(worst()) {
  require(settings.factor >= 0 && settings.factor < 1, Status::kInvalidArgument, "factor is ", settings.factor,
          "; expected a number in [0, 1)");
  require(settings.patience >= 0 && settings.cooldown >= 0, Status::kInvalidArgument, "patience is ", settings.patience,
          " and cooldown ", settings.cooldown, "; expected at least 0");
  require_not_negative(settings.threshold, "threshold");
  require_not_negative(settings.min_lr, "min_lr");
  require_not_negative(settings.eps, "eps");
  note_rates();
}

double PlateauScheduler::worst() const {
  const double infinity = std::numeric_limits<double>::infinity();
  return settings_.mode == MetricMode::kMax ? -infinity : infinity;
}

bool PlateauScheduler::is_better(double metric) const {
  const double sign = settings_.mode == MetricMode::kMax ? 1 : -1;
  const double bound = settings_.threshold_mode == ThresholdMode::kAbs ? best_ + sign * settings_.threshold
                                                                       : best_ * (1.0 + sign * settings_.threshold);
  return settings_.mode == MetricMode::kMax ? metric > bound : metric < bound;
}

void PlateauScheduler::note_rates() {
  last_lrs_.clear();
  for (const ParameterGroup& group : optimizer_->groups()) last_lrs_.push_back(group.lr);
}

void PlateauScheduler::step() {
  fail(Status::kInvalidState, "a scheduler that waits for a plateau was stepped without a metric; give it one");
}

void PlateauScheduler::step_metric(double metric) {
  last_epoch_ += 1;
  if (is_better(metric)) {
    best_ = metric;
    num_bad_epochs_ = 0;
  } else {
    num_bad_epochs_ += 1;
  }
  if (cooldown_counter_ > 0) {
    cooldown_counter_ -= 1;
    num_bad_epochs_ = 0;
  }
  if (num_bad_epochs_ > settings_.patience) {
    for (size_t i = 0; i < optimizer_->groups().size(); ++i) {
      const double before = optimizer_->lr(i), after = std::max<double>(before * settings_.factor, settings_.min_lr);
      if (before - after > settings_.eps) optimizer_->set_lr(i, after);
    }
    cooldown_counter_ = settings_.cooldown;
    num_bad_epochs_ = 0;
  }
  note_rates();
}

std::shared_ptr<Scheduler> PlateauScheduler::copy_for(std::shared_ptr<Optimizer> optimizer) const {
  auto copy = std::make_shared<PlateauScheduler>(*this);
  copy->optimizer_ = std::move(optimizer);
  return copy;
}

c10::IValue PlateauScheduler::state_dict() const {
  Map state = tree::new_map();
  state.insert("mode", settings_.mode == MetricMode::kMax ? "max" : "min");
  state.insert("factor", settings_.factor);
  state.insert("patience", settings_.patience);
  state.insert("threshold", settings_.threshold);
  state.insert("threshold_mode", settings_.threshold_mode == ThresholdMode::kAbs ? "abs" : "rel");
  state.insert("cooldown", settings_.cooldown);
  state.insert("min_lrs", as_list(std::vector<double>(last_lrs_.size(), settings_.min_lr)));
  state.insert("eps", settings_.eps);
  state.insert("mode_worse", worst());
  state.insert("best", best_);
  state.insert("last_epoch", last_epoch_);
  state.insert("num_bad_epochs", num_bad_epochs_);
  state.insert("cooldown_counter", cooldown_counter_);
  state.insert("_last_lr", as_list(last_lrs_));
  return state;
}

void PlateauScheduler::load_state_dict(const c10::IValue& state_dict) {
  const Map map = scheduler_state(state_dict);
  const double best = read_any_number(map, "best");
  const int64_t last_epoch = read_count(map, "last_epoch", 0);
  const int64_t num_bad_epochs = read_count(map, "num_bad_epochs", 0);
  const int64_t cooldown_counter = read_count(map, "cooldown_counter", 0);
  last_lrs_ = read_rates(map, "_last_lr", last_lrs_.size());
  best_ = best;
  last_epoch_ = last_epoch;
  num_bad_epochs_ = num_bad_epochs;
  cooldown_counter_ = cooldown_counter;
  for (size_t i = 0; i < last_lrs_.size(); ++i) optimizer_->set_lr(i, last_lrs_[i]);
}

}  // namespace accel::optim
