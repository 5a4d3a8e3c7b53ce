// SPDX-License-Identifier: Apache-2.0
#include "tensor/device/device.hpp"

#include <charconv>

#include "base/error.hpp"
#include "tensor/device/device_availability.hpp"

namespace accel::tensor {
namespace {

constexpr int64_t kLargestIndex = 127;  // c10::DeviceIndex has eight bits

bool index_fits(c10::DeviceType type, int64_t index) {
  const bool is_one = type == c10::DeviceType::CPU || type == c10::DeviceType::Meta;
  return index >= -1 && index <= (is_one ? 0 : kLargestIndex);
}

}  // namespace

c10::Device device_from_numbers(DeviceNumbers numbers) {
  const auto kind = static_cast<DeviceKind>(numbers.kind);
  require(is_device_kind(numbers.kind), Status::kInvalidArgument, "device type ", numbers.kind,
          " is not known; expected 0 (cpu), 1 (cuda) and so on, up to ", static_cast<int32_t>(DeviceKind::kLastKnown));
  const auto type = device_type(kind);
  require(type.has_value(), Status::kUnsupported, type ? "" : unavailable_reason(kind));
  require(index_fits(*type, numbers.index), Status::kInvalidArgument, "device index ", numbers.index, " of ",
          device_kind_name(kind), " is out of range; expected -1 for the current device or a number from 0");
  return c10::Device(*type, static_cast<c10::DeviceIndex>(numbers.index));
}

DeviceNumbers device_numbers(c10::Device device) { return {static_cast<int32_t>(device_kind(device)), device.index()}; }

std::optional<c10::Device> find_device(std::string_view text) {
  const size_t colon = text.find(':');
  const auto kind = find_device_kind(text.substr(0, colon));
  const auto type = kind ? device_type(*kind) : std::nullopt;
  if (!type) return std::nullopt;
  if (colon == std::string_view::npos) return c10::Device(*type);
  const std::string_view digits = text.substr(colon + 1);
  const char* const end = digits.data() + digits.size();
  uint32_t index = 0;  // without a sign
  const auto [stop, error] = std::from_chars(digits.data(), end, index);
  if (error != std::errc() || stop != end || !index_fits(*type, index)) return std::nullopt;
  return c10::Device(*type, static_cast<c10::DeviceIndex>(index));
}

c10::Device parse_device(std::string_view text) {
  if (const std::optional<c10::Device> device = find_device(text)) return *device;
  const auto kind = find_device_kind(text.substr(0, text.find(':')));
  require(!kind || device_type(*kind), Status::kUnsupported, kind ? unavailable_reason(*kind) : "");
  fail(Status::kInvalidArgument, "device '", text, "' is not known; expected one of ", known_devices(),
       ", and ':N' for the device of this number");
}

}  // namespace accel::tensor
