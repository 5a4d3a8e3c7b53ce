// SPDX-License-Identifier: Apache-2.0
#include "data/device_copy.hpp"

#include <utility>

#include "tensor/tree.hpp"

namespace accel::data {
namespace {

// Devices without a pool of streams, such as MPS, copy in the order of their other work.
std::optional<comm::CommunicationStream> find_copy_stream(c10::Device device) {
  if (device.is_cpu() || device.is_meta()) return std::nullopt;
  const std::optional<c10::Stream> stream = comm::find_pool_stream(device);
  return stream ? std::optional<comm::CommunicationStream>(*stream) : std::nullopt;
}

}  // namespace

DeviceCopy::DeviceCopy(c10::Device device, bool non_blocking)
    : device_(device), non_blocking_(non_blocking), side_(find_copy_stream(device)) {}

DeviceCopy::Started DeviceCopy::start(const c10::IValue& value) {
  Started started;
  bool there = true, is_on_host = true, is_page_locked = true;
  tree::for_each_tensor(value, [&](const at::Tensor& tensor) {
    there = there && tensor.device() == device_;
    is_on_host = is_on_host && tensor.is_cpu();
    is_page_locked = is_page_locked && tensor.is_cpu() && tensor.is_pinned();
  });
  if (there) {
    started.value = value;
    return started;
  }
  if (!side_) {
    started.value = tree::send_to_device(value, device_, non_blocking_, {});
    return started;
  }
  const c10::impl::VirtualGuardImpl guard(device_.type());
  // Only the computation of tensors on a device may still be under way: a batch of the host waits for nothing.
  std::optional<c10::Event> begin;
  if (!is_on_host) begin.emplace(device_.type()).record(guard.getStream(device_));
  const comm::CommunicationStream::Guard on_side(*side_);
  if (begin) begin->block(guard.getStream(device_));
  started.value = tree::send_to_device(value, device_, /*non_blocking=*/true, {});
  started.done.emplace(device_.type());
  started.done->record(guard.getStream(device_));
  started.source = value;
  started.is_held = !non_blocking_ && !is_page_locked;
  return started;
}

c10::IValue DeviceCopy::finish(Started started) const {
  if (!started.done) return std::move(started.value);
  const c10::impl::VirtualGuardImpl guard(device_.type());
  const c10::Stream stream = guard.getStream(device_);
  started.done->block(stream);
  // Memory of the side stream is used on this one from here on.
  tree::for_each_tensor(started.value, [&](const at::Tensor& tensor) {
    if (tensor.device() == device_ && tensor.has_storage())
      guard.recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
  });
  if (started.is_held) started.done->synchronize();
  return std::move(started.value);
}

}  // namespace accel::data
