// SPDX-License-Identifier: Apache-2.0
// Places of a device map, and which of them a module or tensor has.
#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bigmodel/device_map/device_map.hpp"

namespace accel::bigmodel {

// The device of a place, which must be there; nothing for "disk".
std::optional<c10::Device> device_of_place(const std::string& place);

// Looks up paths in a map. Keeps references to the map.
class DevicePlaces {
 public:
  explicit DevicePlaces(const DeviceMap& map);

  // The device of the longest entry that is the path or a parent of it; null if there is none.
  const std::string* find(std::string_view path) const;

 private:
  std::unordered_map<std::string_view, const std::string*> places_;
};

// Where offloaded weights of a map are used: the first accelerator of the map, or the CPU.
c10::Device main_device_of(const DeviceMap& map);

// Whether modules of this place keep their weights elsewhere than on the device that computes with them.
bool is_offloaded(const std::string& place, c10::Device main_device);

}  // namespace accel::bigmodel
