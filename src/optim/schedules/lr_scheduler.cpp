// SPDX-License-Identifier: Apache-2.0
#include "optim/schedules/lr_scheduler.hpp"

#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "optim/schedules/scheduler_state.hpp"
#include "tensor/tree.hpp"

namespace accel::optim {

LrScheduler::LrScheduler(std::shared_ptr<Optimizer> optimizer, Schedule schedule)
    : optimizer_(std::move(optimizer)), schedule_(std::move(schedule)) {
  begin();
}

double LrScheduler::base_of(const ParameterGroup& group) const {
  return schedule_.base_lr.value_or(group.initial_lr.value_or(group.lr));
}

std::vector<double> LrScheduler::present_lrs() const {
  std::vector<double> lrs;
  for (const ParameterGroup& group : optimizer_->groups()) lrs.push_back(group.lr);
  return lrs;
}

// Everything is computed before anything is changed.
void LrScheduler::move_to(int64_t step, bool first, std::vector<double> lrs) {
  const auto& groups = optimizer_->groups();
  std::vector<double> base_lrs = base_lrs_;
  for (size_t i = base_lrs.size(); i < groups.size(); ++i) base_lrs.push_back(base_of(groups[i]));
  schedule_.next(step, first, base_lrs, lrs);
  for (const double lr : lrs)
    require(std::isfinite(lr) && lr >= 0, Status::kInvalidArgument, "the learning rate at step ", step, " is ", lr,
            "; expected a finite number of at least 0");
  if (schedule_.momentum) {
    const char* const name = optimizer_->has_setting("momentum") ? "momentum" : "beta1";
    require(optimizer_->has_setting(name), Status::kInvalidArgument,
            "the optimizer has neither a momentum nor beta1; set cycle_momentum to 0");
    for (size_t i = 0; i < groups.size(); ++i) optimizer_->set_setting(i, name, schedule_.momentum(step));
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    ParameterGroup& group = optimizer_->group(i);
    if (!group.initial_lr || (schedule_.replaces_initial_lr && i >= base_lrs_.size())) group.initial_lr = base_lrs[i];
    if (i >= base_lrs_.size() && !schedule_.group_values.empty()) group.scheduled = schedule_.group_values;
    group.lr = lrs[i];
  }
  base_lrs_ = std::move(base_lrs);
  last_lrs_ = std::move(lrs);
  last_epoch_ = step;
}

void LrScheduler::step() {
  move_to(last_epoch_ + 1, /*first=*/false, present_lrs());
  if (schedule_.counts_steps) step_count_ += 1;
}

void LrScheduler::begin() {
  move_to(0, /*first=*/true, present_lrs());
  step_count_ = schedule_.counts_steps ? 1 : 0;
}

void LrScheduler::restart() {
  std::vector<double> lrs = present_lrs();
  for (size_t i = 0; i < lrs.size(); ++i)
    lrs[i] = i < base_lrs_.size() ? base_lrs_[i] : base_of(optimizer_->groups()[i]);
  move_to(0, /*first=*/true, std::move(lrs));
}

std::shared_ptr<Scheduler> LrScheduler::copy_for(std::shared_ptr<Optimizer> optimizer) const {
  auto copy = std::make_shared<LrScheduler>(*this);
  copy->optimizer_ = std::move(optimizer);
  return copy;
}

c10::IValue LrScheduler::state_dict() const {
  Map state = tree::new_map();
  schedule_.describe(last_epoch_, base_lrs_.size(), state);
  state.insert("base_lrs", as_list(base_lrs_));
  state.insert("last_epoch", last_epoch_);
  state.insert("_step_count", step_count_);
  state.insert("_last_lr", as_list(last_lrs_));
  return state;
}

void LrScheduler::load_state_dict(const c10::IValue& state_dict) {
  const Map map = scheduler_state(state_dict);
  const int64_t last_epoch = read_count(map, "last_epoch", -1);  // torch's value before the turn of a part has come
  const int64_t step_count = read_count(map, "_step_count", 0);
  auto base_lrs = read_rates(map, "base_lrs", base_lrs_.size());
  auto last_lrs = read_rates(map, "_last_lr", last_lrs_.size());
  last_epoch_ = last_epoch;
  step_count_ = step_count;
  base_lrs_ = std::move(base_lrs);
  last_lrs_ = std::move(last_lrs);
  warn_of_other_settings(map);
  // An optimizer whose own state is not loaded would make its next step with
  // the rate of step 0.
  for (size_t i = 0; i < last_lrs_.size(); ++i) optimizer_->set_lr(i, last_lrs_[i]);
}

// Unlike in torch, a saved gamma does not replace that of the application.
void LrScheduler::warn_of_other_settings(const Map& loaded) const {
  Map own = tree::new_map();
  schedule_.describe(last_epoch_, base_lrs_.size(), own);
  for (const auto& setting : own) {
    const auto saved = loaded.find(setting.key());
    if (saved != loaded.end() && !tree::equal(saved->value(), setting.value()))
      log(LogLevel::kWarning, "\"", setting.key().toStringRef(), "\" of a scheduler is ", saved->value(),
          " in the state that was loaded and ", setting.value(), " in the program, which counts");
  }
}

}  // namespace accel::optim
