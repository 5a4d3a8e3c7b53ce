// SPDX-License-Identifier: Apache-2.0
#include "precision/scale_recording.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

namespace accel::precision {

ScaleRecording::ScaleRecording(std::shared_ptr<GradScaler> scaler, c10::Device device)
    : scaler_(std::move(scaler)), former_backwards_(scaler_->backwards_) {
  const at::NoGradGuard no_grad;
  scaler_->settled();
  scaler_->bring_to(device);
  scale_ = *scaler_->on_device_;
  scaler_->recorded_ = &flags_;
}

ScaleRecording::~ScaleRecording() {
  if (scaler_->recorded_ != &flags_) return;
  scaler_->recorded_ = nullptr;
  scaler_->backwards_ = former_backwards_;
  for (const auto& user : scaler_->users_)
    if (const auto gradients = user.lock()) {
      gradients->found_.clear();
      gradients->stepped_at_ = std::min(gradients->stepped_at_, former_backwards_);
    }
}

void ScaleRecording::end() { scaler_->recorded_ = nullptr; }

bool ScaleRecording::is_current() const {
  return scaler_->on_device_ && scaler_->on_device_->value.is_same(scale_.value);
}

std::vector<std::shared_ptr<OverflowFlag>> ScaleRecording::note_replay() const {
  std::vector<std::shared_ptr<OverflowFlag>> flags;
  for (const auto& recorded : flags_) {
    // A copy, because the next time the recording writes another number there.
    flags.push_back(std::make_shared<OverflowFlag>(recorded->tensor().clone()));
    if (!scaler_->rules_.is_constant) scaler_->hear_later(flags.back());
  }
  return flags;
}

}  // namespace accel::precision
