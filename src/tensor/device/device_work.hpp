// SPDX-License-Identifier: Apache-2.0
// Functions of a device beside tensors and operators: which one is current, waiting for its work, its memory and its
// properties, through LibTorch's interfaces that all accelerators have. kUnsupported for functions that the device
// lacks.
#pragma once

#include <ATen/detail/AcceleratorHooksInterface.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace accel::tensor {

// The device of this type that is current on this thread; index 0 for the CPU and meta.
c10::Device current_device(c10::DeviceType type);
void set_current_device(c10::Device device);

// Waits for all work of all streams.
void synchronize(c10::Device device);

// Returns what the device's allocator keeps for later tensors; nothing happens if it keeps nothing.
void empty_cache(c10::DeviceType type);

// In bytes.
struct DeviceMemory {
  int64_t allocated, peak_allocated;   // by tensors
  int64_t reserved, peak_reserved;     // by the allocator, including what it keeps
  std::optional<int64_t> free, total;  // of the device; nothing if it does not tell
};
DeviceMemory device_memory(c10::Device device);
// Peaks are counted from what is allocated now.
void reset_peak_memory(c10::Device device);

// Whether tensors of this type can be computed with; true if the device does not tell.
bool supports_dtype(c10::Device device, c10::ScalarType dtype);

// Whether host memory can be pinned for the device, so that copies do not wait; false if the device has no such memory,
// and, with one warning, if the system gives none, as with a limit of 0.
bool can_pin(c10::DeviceType type);

// LibTorch's hooks of an accelerator.
const at::AcceleratorHooksInterface& device_hooks(c10::DeviceType type);

}  // namespace accel::tensor
