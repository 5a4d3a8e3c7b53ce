// SPDX-License-Identifier: Apache-2.0
#include "copies.hpp"

#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include "capture.hpp"
#include "device.hpp"
#include "faults.hpp"
#include "host_tensor.hpp"
#include "pinned_memory.hpp"
#include "settings.hpp"
#include "storage_operators.hpp"

namespace simulated_device {
namespace {

using at::Tensor;

SimulatedDevice& device_for_copy(const Tensor& tensor) {
  SimulatedDevice& device = usable_device(tensor.device().index());
  ++device.copies;
  TORCH_CHECK(!faults().copy_fails(device.index()), "a copy of ", tensor.device(), " failed, as was asked for");
  return device;
}

bool has_same_layout(const Tensor& one, const Tensor& other) {
  return one.dtype() == other.dtype() && one.strides() == other.strides() && one.is_non_overlapping_and_dense();
}

// Owns the tensor of the host until the copy has ended. Tensors of a device are not owned: streams order their uses.
void queue_copy(Stream& stream, Tensor to, Tensor from) {
  const std::chrono::microseconds delay(settings().copy_delay_us);
  const auto copy = [to = std::move(to), from = std::move(from)] { copy_on_host(to, from); };
  if (Capture* const capture = stream.capture()) capture->add(copy, delay);
  stream.enqueue(copy, delay);
}

// A graph copies what page-locked memory has when it is replayed.
void require_copy_can_be_recorded(const Stream& stream, const Tensor& host, bool non_blocking) {
  if (!non_blocking || !is_pinned(host.const_data_ptr())) require_no_capture(stream, "a copy that waits");
}

void wait_for(Stream& stream, c10::Device device) {
  stream.synchronize();
  ++usable_device(device.index()).host_waits;  // it may have been lost meanwhile
}

// Host memory that is not pinned, or must be converted first, is read before the call returns.
void copy_to_device(const Tensor& from, const Tensor& to, bool non_blocking) {
  SimulatedDevice& device = device_for_copy(to);
  Stream& stream = current_stream(device.index());
  Tensor source = from;
  require_copy_can_be_recorded(stream, from, non_blocking);
  bool may_change = is_pinned(from.const_data_ptr());
  if (!may_change) ++device.pageable_copies;
  if (!has_same_layout(from, to) && !stream.capture()) {
    source = at::empty_strided(to.sizes(), to.strides(), from.options().dtype(to.dtype()).pinned_memory(false));
    copy_on_host(source, from);
    may_change = false;
  }
  queue_copy(stream, host_alias(to), source);
  if (!non_blocking || (!may_change && source.is_same(from))) wait_for(stream, to.device());
}

void copy_to_host(const Tensor& from, const Tensor& to, bool non_blocking) {
  SimulatedDevice& device = device_for_copy(from);
  Stream& stream = current_stream(device.index());
  require_copy_can_be_recorded(stream, to, non_blocking);
  if (!is_pinned(to.const_data_ptr())) ++device.pageable_copies;
  if (non_blocking) poison(to);
  queue_copy(stream, to, host_alias(from));
  if (!non_blocking) wait_for(stream, from.device());
}

// On the source's stream, which waits for the destination's, and the other way round after the copy.
void copy_between_devices(const Tensor& from, const Tensor& to) {
  Stream& stream = current_stream(device_for_copy(from).index());
  Stream& other = current_stream(usable_device(to.device().index()).index());
  if (&stream != &other) {
    require_no_capture(stream, "a copy to another device");
    require_no_capture(other, "a copy from another device");
  }
  stream.wait_for(other.record());
  queue_copy(stream, host_alias(to), host_alias(from));
  other.wait_for(stream.record());
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool non_blocking) {
  if (to.numel() == 0) return to;
  const Tensor source = from.sizes() == to.sizes() ? from : from.expand(to.sizes());
  if (!is_on_device(from))
    copy_to_device(source, to, non_blocking);
  else if (!is_on_device(to))
    copy_to_host(source, to, non_blocking);
  else
    copy_between_devices(source, to);
  // A kernel makes what is no plain copy of bytes.
  if (is_on_device(from) && is_on_device(to) && !has_same_layout(source, to)) {
    SimulatedDevice& device = usable_device(to.device().index());
    ++device.launches;
    if (from.dtype() != to.dtype()) ++device.casts;
  }
  return to;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  if (to.sizes() != from.sizes()) {
    if (is_on_device(to))
      resize_tensor(to, from.sizes());
    else
      to.resize_(from.sizes());
  }
  return copy_from(from, to, false);
}

}  // namespace

void register_copies(torch::Library& library) {
  library.impl("_copy_from", copy_from);
  library.impl("_copy_from_and_resize", copy_from_and_resize);
}

}  // namespace simulated_device

// Copies conjugate and negate by themselves. LibTorch would do it by a copy, without end.
TORCH_LIBRARY_IMPL(aten, Conjugate, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
  library.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, Negative, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
  library.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}
