// SPDX-License-Identifier: Apache-2.0
#include "tensor/device/host_copy.hpp"

#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "tensor/device/device_work.hpp"
#include "tensor/device/page_locked.hpp"

namespace accel::tensor {

bool HostCopy::is_possible(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_cpu() && !tensor.is_meta() && tensor.layout() == at::kStrided;
}

HostCopy::HostCopy(const at::Tensor& tensor) : device_(tensor.device()), pinned_(can_pin(tensor.device().type())) {
  const at::NoGradGuard without_graph;
  host_ = empty_like_on_host(tensor, tensor.options().pinned_memory(pinned_));
  pinned_ = pinned_ && host_.is_pinned();
  host_.copy_(tensor, /*non_blocking=*/pinned_);
  if (!pinned_) return;
  written_ = std::make_shared<c10::Event>(device_.type());
  written_->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
}

at::Tensor HostCopy::on_device(const at::Tensor& host) const {
  const at::NoGradGuard without_graph;
  if (written_) written_->block(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  return host.to(device_, /*non_blocking=*/pinned_);
}

}  // namespace accel::tensor
