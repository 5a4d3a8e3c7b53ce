// SPDX-License-Identifier: Apache-2.0
#include "state/gradient_state.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace accel::state {

void GradientState::set_num_steps(int64_t steps) {
  require(steps >= 1, Status::kInvalidArgument, "gradient_accumulation_steps is ", steps, "; expected at least 1");
  settings_.num_steps = steps;
}

void GradientState::set_settings(const AccumulationSettings& settings) {
  set_num_steps(settings.num_steps);
  settings_ = settings;
}

void advance(AccumulationWindow& window, bool completes) {
  if (window.complete) {
    window.length = 0;
    window.weight = 0;
    window.items = -1;
  }
  window.length += 1;
  window.complete = completes;
}

void GradientState::begin_micro_batch(const AccumulationWindows& windows) {
  const AccumulationWindows& counted = windows.empty() ? own_ : windows;
  const AccumulationWindow& first = *counted.front();
  for (const auto& window : counted)
    require(window->micro_batch == first.micro_batch && window->complete == first.complete, Status::kInvalidState,
            "one model has accumulated ", first.micro_batch, " micro-batches and another ", window->micro_batch,
            "; expected models of one micro-batch to be at the same place: accumulate them always together, or always "
            "apart");
  const bool ends = settings_.sync_with_dataloader && end_of_dataloader();
  const int64_t micro_batch = ends ? 0 : first.micro_batch + 1;
  sync_gradients_ = micro_batch % settings_.num_steps == 0;
  for (const auto& window : counted) {
    window->micro_batch = micro_batch;
    advance(*window, sync_gradients_);
  }
}

void GradientState::begin_loader(const std::shared_ptr<const LoaderProgress>& progress,
                                 const std::weak_ptr<data::PreparedDataLoader>& loader) {
  end_loader(progress);
  loaders_.push_back({progress, loader});
}

void GradientState::end_loader(const std::shared_ptr<const LoaderProgress>& progress) {
  loaders_.erase(std::remove_if(loaders_.begin(), loaders_.end(),
                                [&](const RunningLoader& entry) {
                                  return entry.progress.expired() || entry.progress.lock() == progress;
                                }),
                 loaders_.end());
}

std::shared_ptr<const LoaderProgress> GradientState::active() const {
  for (auto entry = loaders_.rbegin(); entry != loaders_.rend(); ++entry)
    if (auto progress = entry->progress.lock()) return progress;
  return nullptr;
}

std::shared_ptr<data::PreparedDataLoader> GradientState::active_loader(int64_t depth) const {
  for (auto entry = loaders_.rbegin(); entry != loaders_.rend(); ++entry) {
    auto loader = entry->loader.lock();
    if (loader != nullptr && depth-- == 0) return loader;
  }
  return nullptr;
}

bool GradientState::end_of_dataloader() const {
  const auto progress = active();
  return progress != nullptr && progress->end_of_dataloader;
}

int64_t GradientState::remainder() const {
  const auto progress = active();
  return progress != nullptr ? progress->remainder : -1;
}

}  // namespace accel::state
