// SPDX-License-Identifier: Apache-2.0
// Which devices can be used in this process, and why others cannot.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>

#include "tensor/device/device_kind.hpp"

namespace accel::tensor {

// The number of usable devices, 1 for the CPU and meta. Loads the plugins of the environment, and LibTorch's library
// for the kind if there is a driver.
int64_t device_count(DeviceKind kind);

// Why no device of this kind can be used, as one line; empty if one can.
std::string unavailable_reason(DeviceKind kind);

// kUnsupported with the reason if no device of this kind can be used, kInvalidArgument for an index that is not there.
void require_device(c10::Device device);

// The accelerator that a rank uses if nothing else is asked for: the first available one in Accelerate's order (mps,
// mlu, sdaa, musa, npu, hpu, cuda, xpu, neuron), before which comes an out-of-tree device of another name, because
// somebody loaded its plugin. Without an index. Nothing if only the CPU is there.
std::optional<c10::Device> default_accelerator();
// Considers only accelerators that are loaded already: nothing is loaded for the answer, and LibTorch is not asked for
// hooks.
std::optional<c10::Device> loaded_accelerator();

}  // namespace accel::tensor
