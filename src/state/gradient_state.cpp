#include "state/gradient_state.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace accel::state {

void GradientState::set_num_steps(int64_t steps) {
  require(steps >= 1, Status::kInvalidArgument, "gradient_accumulation_steps is ", steps, "; expected at least 1");
  settings_.num_steps = steps;
}

void GradientState::begin_micro_batch() {
  if (settings_.sync_with_dataloader && end_of_dataloader()) {
    micro_batch_ = 0;
    sync_gradients_ = true;
  } else {
    micro_batch_ += 1;
    sync_gradients_ = micro_batch_ % settings_.num_steps == 0;
  }
}

void GradientState::begin_loader(const std::shared_ptr<const LoaderProgress>& progress) {
  end_loader(progress);
  loaders_.push_back(progress);
}

void GradientState::end_loader(const std::shared_ptr<const LoaderProgress>& progress) {
  loaders_.erase(std::remove_if(loaders_.begin(), loaders_.end(),
                                [&](const auto& entry) { return entry.expired() || entry.lock() == progress; }),
                 loaders_.end());
}

std::shared_ptr<const LoaderProgress> GradientState::active() const {
  for (auto entry = loaders_.rbegin(); entry != loaders_.rend(); ++entry)
    if (auto progress = entry->lock()) return progress;
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
