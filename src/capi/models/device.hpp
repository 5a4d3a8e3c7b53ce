// SPDX-License-Identifier: Apache-2.0
// Conversion between accel_device_t and LibTorch's device.
#pragma once

#include <c10/core/Device.h>

#include "accel.h"

namespace accel::capi {

// kInvalidArgument for NULL, and for numbers that are not a device.
c10::Device to_device(const accel_device_t* device, const char* name = "device");
accel_device_t from_device(c10::Device device);

}  // namespace accel::capi
