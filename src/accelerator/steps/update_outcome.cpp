// SPDX-License-Identifier: Apache-2.0
#include "accelerator/steps/update_outcome.hpp"

#include <utility>

#include "precision/overflow_flag.hpp"

namespace accel::accelerator {

void UpdateOutcome::begin() {
  settle();
  set(true);
  num_updates_ += 1;
}

void UpdateOutcome::set(bool skipped) {
  const std::lock_guard lock(mutex_);
  skipped_ = skipped;
  overflow_ = nullptr;
}

void UpdateOutcome::set(std::shared_ptr<precision::OverflowFlag> overflow) {
  const std::lock_guard lock(mutex_);
  overflow_ = std::move(overflow);
}

bool UpdateOutcome::is_known() const {
  const std::lock_guard lock(mutex_);
  return overflow_ == nullptr;
}

bool UpdateOutcome::was_skipped() const {
  const std::lock_guard lock(mutex_);
  return overflow_ != nullptr ? overflow_->value() : skipped_;
}

void UpdateOutcome::when_known(std::function<void()> action) {
  {
    const std::lock_guard lock(mutex_);
    if (overflow_ != nullptr) return waiting_.push_back(std::move(action));
  }
  action();
}

void UpdateOutcome::settle() {
  std::vector<std::function<void()>> actions;
  {
    const std::lock_guard lock(mutex_);
    if (overflow_ == nullptr) return;
    skipped_ = overflow_->value();
    overflow_ = nullptr;
    actions.swap(waiting_);
  }
  for (const auto& action : actions) action();
}

void UpdateOutcome::make_waiting_calls() {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.empty()) return;
  }
  settle();
}

std::shared_ptr<const precision::OverflowFlag> UpdateOutcome::overflow() const {
  const std::lock_guard lock(mutex_);
  return overflow_;
}

}  // namespace accel::accelerator
