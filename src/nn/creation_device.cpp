// SPDX-License-Identifier: Apache-2.0
#include "nn/creation_device.hpp"

#include <ATen/core/Tensor.h>

#include <utility>

#include "tensor/device/device_availability.hpp"
#include "tensor/device/device_work.hpp"

namespace accel::nn {
namespace {

// With the index that tensors there have.
c10::Device exact(c10::Device device) {
  tensor::require_device(device);
  if (device.is_cpu() || device.is_meta()) return c10::Device(device.type());
  return device.has_index() ? device : tensor::current_device(device.type());
}

at::TensorOptions options_on(const std::optional<c10::Device>& device) {
  return at::TensorOptions().device(device.value_or(c10::Device(c10::kCPU)));
}

at::Tensor moved_to(const std::optional<c10::Device>& device, at::Tensor tensor) {
  if (!device || tensor.is_meta() || tensor.device() == *device) return tensor;
  return tensor.detach().to(*device);
}

}  // namespace

CreationDevice::Places& CreationDevice::places() {
  thread_local Places current;
  return current;
}

CreationDevice::CreationDevice(std::optional<c10::Device> device, bool include_buffers) : outer_(places()) {
  if (device) device = exact(*device);
  places().parameters = device;
  if (include_buffers) places().buffers = device;
}

CreationDevice::~CreationDevice() { places() = outer_; }

at::TensorOptions new_parameter_options() { return options_on(CreationDevice::places().parameters); }
at::TensorOptions new_buffer_options() { return options_on(CreationDevice::places().buffers); }

at::Tensor as_new_parameter(at::Tensor tensor) {
  return moved_to(CreationDevice::places().parameters, std::move(tensor));
}
at::Tensor as_new_buffer(at::Tensor tensor) { return moved_to(CreationDevice::places().buffers, std::move(tensor)); }

}  // namespace accel::nn
