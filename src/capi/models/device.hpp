// Conversion between accel_device_t and LibTorch's device.
#pragma once

#include <c10/core/Device.h>

#include "accel.h"

namespace accel::capi {

c10::Device to_device(accel_device_t device);  // kInvalidArgument for numbers that are not a device
accel_device_t from_device(c10::Device device);

}  // namespace accel::capi
