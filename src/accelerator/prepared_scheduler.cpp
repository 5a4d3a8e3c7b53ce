// SPDX-License-Identifier: Apache-2.0
#include "accelerator/prepared_scheduler.hpp"

#include <algorithm>

namespace accel::accelerator {

bool PreparedScheduler::has_skipped_update() const {
  return std::any_of(optimizers_.begin(), optimizers_.end(),
                     [](const auto& optimizer) { return optimizer->step_was_skipped(); });
}

bool PreparedScheduler::may_step() {
  settle();
  if (!stepping_.step_with_optimizer) return true;
  if (!gradient_state_->sync_gradients()) {
    if (gradient_state_->settings().adjust_scheduler) scheduler_->count_step();
    return false;
  }
  return !has_skipped_update();
}

void PreparedScheduler::settle() const {
  if (!is_open_) return;
  is_open_ = false;
  if (!has_skipped_update()) advance();
}

void PreparedScheduler::step() {
  settle();
  is_open_ = stepping_.step_with_optimizer && gradient_state_->sync_gradients() &&
             !std::all_of(optimizers_.begin(), optimizers_.end(),
                          [](const auto& optimizer) { return optimizer->knows_step(); });
  if (!is_open_) {
    if (may_step()) advance();
    return;
  }
  for (const auto& optimizer : optimizers_) {
    if (optimizer->knows_step()) continue;
    optimizer->when_step_is_known([scheduler = weak_from_this()] {
      if (const auto self = scheduler.lock()) self->settle();
    });
  }
}

void PreparedScheduler::advance() const {
  const int64_t steps = stepping_.step_with_optimizer ? stepping_.steps_per_update : 1;
  for (int64_t i = 0; i < steps; i++) {
    if (stepping_.step_with_optimizer && stepping_.stop_at_end && scheduler_->has_ended()) return;
    scheduler_->step();
  }
}

void PreparedScheduler::step_metric(double metric) {
  if (may_step()) scheduler_->step_metric(metric);
}

std::shared_ptr<optim::Scheduler> PreparedScheduler::copy_for(std::shared_ptr<optim::Optimizer> optimizer) const {
  return std::make_shared<PreparedScheduler>(
      scheduler_->copy_for(std::move(optimizer)), std::vector<std::shared_ptr<optim::Optimizer>>(),
      std::make_shared<state::GradientState>(state::AccumulationSettings{}), stepping_);
}

}  // namespace accel::accelerator
