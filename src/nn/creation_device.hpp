// SPDX-License-Identifier: Apache-2.0
// Creation device: where new parameters and buffers are made, in a scope of a thread. For models without memory (on the
// device meta), and for models that are made where they are used.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/TensorOptions.h>

#include <optional>

namespace accel::nn {

// A scope; the innermost one of the thread counts.
class CreationDevice {
 public:
  // Without `include_buffers`, buffers are made where they are outside of it. Without a device, nothing is moved.
  CreationDevice(std::optional<c10::Device> device, bool include_buffers);
  ~CreationDevice();
  CreationDevice(const CreationDevice&) = delete;
  CreationDevice& operator=(const CreationDevice&) = delete;

 private:
  struct Places {
    std::optional<c10::Device> parameters, buffers;
  };
  static Places& places();

  friend at::TensorOptions new_parameter_options();
  friend at::TensorOptions new_buffer_options();
  friend at::Tensor as_new_parameter(at::Tensor tensor);
  friend at::Tensor as_new_buffer(at::Tensor tensor);

  Places outer_;
};

// The options of tensors that layers make: on the CPU outside of scopes.
at::TensorOptions new_parameter_options();
at::TensorOptions new_buffer_options();

// A tensor that is given to a module: a copy on the scope's device, or itself where it is there. On the device meta it
// stays there, since it has nothing to be copied.
at::Tensor as_new_parameter(at::Tensor tensor);
at::Tensor as_new_buffer(at::Tensor tensor);

}  // namespace accel::nn
