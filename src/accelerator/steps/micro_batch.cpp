// SPDX-License-Identifier: Apache-2.0
#include "accelerator/steps/micro_batch.hpp"
#include "config/generated/settings/state/state.hpp"

#include <utility>

namespace accel::accelerator {

MicroBatch::MicroBatch(std::shared_ptr<Accelerator> accelerator, const std::vector<nn::ModulePtr>& modules)
    : accelerator_(std::move(accelerator)) {
  const state::State& state = accelerator_->state();
  state::GradientState& gradient_state = *state.gradient_state();
  for (const nn::ModulePtr& module : modules)
    if (const auto* prepared = dynamic_cast<const PreparedModel*>(module.get()))
      current_.windows.push_back(prepared->accumulation());
  gradient_state.begin_micro_batch(current_.windows);
  if (current_.windows.empty()) current_.windows = gradient_state.own();
  if (modules.empty()) current_.models = accelerator_->prepared().parallel_models();
  for (const nn::ModulePtr& module : modules) current_.models.push_back(parallel_model_of(module));
  const bool exchanges =
      gradient_state.sync_gradients() || (state.use_distributed() && gradient_state.settings().sync_each_batch);
  if (!exchanges) no_sync_.emplace(std::vector<nn::ModulePtr>(current_.models.begin(), current_.models.end()));
  former_ = accelerator_->backward().set_current(&current_);
}

MicroBatch::~MicroBatch() { accelerator_->backward().set_current(former_); }

}  // namespace accel::accelerator
