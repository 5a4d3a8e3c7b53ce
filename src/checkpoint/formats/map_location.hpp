// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

namespace accel::checkpoint {

// A value of a file with its tensors on a device. Those that share a storage share one there, too. kUnsupported or
// kInvalidArgument for a device that is not there.
c10::IValue map_location(const c10::IValue& value, c10::Device device);

}  // namespace accel::checkpoint
