// SPDX-License-Identifier: Apache-2.0
#include "precision/overflow_flag.hpp"

#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "tensor/device/device_work.hpp"
#include "tensor/device/page_locked.hpp"

namespace accel::precision {

OverflowFlag::OverflowFlag(at::Tensor found) : found_(std::move(found)) {
  if (is_on_host()) {
    value_ = found_.item<float>() != 0;
    return;
  }
  const at::NoGradGuard no_grad;
  const c10::Device device = found_.device();
  if (tensor::can_pin(device.type())) {
    host_ = tensor::empty_on_host({}, at::TensorOptions().dtype(at::kFloat).pinned_memory(true));
    if (host_.is_pinned())
      host_.copy_(found_, /*non_blocking=*/true);
    else
      host_.reset();
  }
  copied_ = std::make_shared<c10::Event>(device.type());
  copied_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

std::shared_ptr<OverflowFlag> OverflowFlag::recorded(at::Tensor found) {
  std::shared_ptr<OverflowFlag> flag(new OverflowFlag());
  flag->found_ = std::move(found);
  flag->is_recorded_ = true;
  flag->value_ = false;
  return flag;
}

bool OverflowFlag::is_known() const {
  const std::lock_guard lock(mutex_);
  return value_ || (host_.defined() && copied_->query());
}

bool OverflowFlag::value() const {
  const std::lock_guard lock(mutex_);
  if (value_) return *value_;
  if (host_.defined()) {
    if (!copied_->query()) copied_->synchronize();
    value_ = host_.item<float>() != 0;
  } else {
    const c10::Device device = found_.device();
    copied_->block(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
    value_ = found_.item<float>() != 0;
  }
  return *value_;
}

}  // namespace accel::precision
