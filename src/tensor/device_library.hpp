// The libraries that registered a type of device with LibTorch.
#pragma once

#include <c10/core/DeviceType.h>

namespace accel::tensor {

// The handle of the dynamic linker; null if the device is LibTorch's own.
void set_device_library(c10::DeviceType type, void* library);
void* device_library(c10::DeviceType type);

}  // namespace accel::tensor
