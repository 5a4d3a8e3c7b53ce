// SPDX-License-Identifier: Apache-2.0
#include "accelerator/prepared_optimizer.hpp"

#include <utility>

namespace accel::accelerator {

PreparedOptimizer::PreparedOptimizer(
    std::shared_ptr<optim::Optimizer> optimizer, std::shared_ptr<const state::GradientState> gradient_state,
    const std::shared_ptr<precision::GradScaler>& scaler, std::shared_ptr<StepTimes> step_times,
    std::shared_ptr<const parallel::PlacedParameters> placed, std::shared_ptr<const StepClipping> clipping,
    std::shared_ptr<ExchangeCheck> exchanged, size_t index, std::shared_ptr<const ExpertBalance> balance,
    std::shared_ptr<Fp8Scales> fp8, c10::Device device)
    : optimizer_(std::move(optimizer)),
      gradient_state_(std::move(gradient_state)),
      update_(optimizer_, scaler, std::move(step_times), std::move(placed), std::move(clipping), std::move(exchanged),
              index, std::move(balance), std::move(fp8), device) {}

bool PreparedOptimizer::step() {
  // Without complete gradients there is no update, so none was skipped: schedulers ask for that.
  if (!gradient_state_->sync_gradients()) return false;
  const bool is_updated = update_.step();
  if (after_update_) after_update_();
  return is_updated;
}

bool PreparedOptimizer::step_by(const optim::Closure& closure) {
  update_.require_closures();
  if (!gradient_state_->sync_gradients()) return false;
  const bool is_updated = update_.step_by(closure);
  if (after_update_) after_update_();
  return is_updated;
}

}  // namespace accel::accelerator
