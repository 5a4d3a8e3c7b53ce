// SPDX-License-Identifier: Apache-2.0
// Device maps and memories as nested values: places are integers (accelerators) or texts.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>

#include "bigmodel/device_map/device_map.hpp"
#include "bigmodel/device_map/max_memory.hpp"

namespace accel::bigmodel {

c10::IValue value_of_place(const std::string& place);
// An integer if it is one; NONE for infinity.
c10::IValue value_of_bytes(double bytes);
c10::IValue value_of(const DeviceMap& map);
c10::IValue value_of(const MaxMemory& memory);

// `name` is the parameter's. kTypeMismatch for other values, kInvalidArgument for places that cannot be one.
std::string read_place(const c10::IValue& value, const std::string& name);
DeviceMap read_device_map(const c10::IValue& value, const std::string& name);
// Bytes are numbers, or texts such as "8GiB". The result is in the order of MaxMemory.
MaxMemory read_max_memory(const c10::IValue& value, const std::string& name);

}  // namespace accel::bigmodel
