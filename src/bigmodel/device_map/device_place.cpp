// SPDX-License-Identifier: Apache-2.0
#include "bigmodel/device_map/device_place.hpp"

#include <cstdint>

#include "base/error.hpp"
#include "tensor/device/device.hpp"
#include "tensor/device/device_availability.hpp"

namespace accel::bigmodel {
namespace {

constexpr const char* kDisk = "disk";

c10::Device accelerator(const std::string& number) {
  constexpr size_t kMostDigits = 3;  // c10::DeviceIndex is an int8_t
  const std::optional<c10::Device> kind = tensor::default_accelerator();
  require(kind.has_value(), Status::kUnsupported, "the device map names accelerator ", number,
          ", and none is there; expected \"cpu\" or \"disk\"");
  require(number.size() <= kMostDigits && std::stoi(number) <= INT8_MAX, Status::kInvalidArgument, "accelerator ",
          number, " is not there; expected the number of one that is");
  return {kind->type(), static_cast<c10::DeviceIndex>(std::stoi(number))};
}

}  // namespace

std::optional<c10::Device> device_of_place(const std::string& place) {
  if (place == kDisk) return std::nullopt;
  c10::Device device = is_accelerator_number(place) ? accelerator(place) : tensor::parse_device(place);
  tensor::require_device(device);
  if (!device.is_cpu() && !device.has_index()) device.set_index(0);
  return device;
}

DevicePlaces::DevicePlaces(const DeviceMap& map) {
  for (const auto& [path, place] : map) places_.emplace(path, &place);
}

const std::string* DevicePlaces::find(std::string_view path) const {
  while (true) {
    const auto found = places_.find(path);
    if (found != places_.end()) return found->second;
    if (path.empty()) return nullptr;
    const size_t dot = path.rfind('.');
    path = dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
  }
}

c10::Device main_device_of(const DeviceMap& map) {
  for (const auto& [path, place] : map) {
    const std::optional<c10::Device> device = device_of_place(place);
    if (device && !device->is_cpu()) return *device;
  }
  return c10::Device(c10::kCPU);
}

bool is_offloaded(const std::string& place, c10::Device main_device) {
  return place == kDisk || (place == "cpu" && !main_device.is_cpu());
}

}  // namespace accel::bigmodel
