#include "accelerator/prepared_optimizer.hpp"

namespace accel::accelerator {

void PreparedScheduler::step() {
  if (!stepping_.step_with_optimizer) return scheduler_->step();
  if (!gradient_state_->sync_gradients()) {
    if (gradient_state_->settings().adjust_scheduler) scheduler_->count_step();
    return;
  }
  for (const auto& optimizer : optimizers_)
    if (optimizer->step_was_skipped()) return;
  const int64_t steps = stepping_.split_batches ? 1 : stepping_.num_processes;
  for (int64_t i = 0; i < steps; i++) scheduler_->step();
}

}  // namespace accel::accelerator
