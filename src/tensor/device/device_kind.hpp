// SPDX-License-Identifier: Apache-2.0
// Kinds of devices: their numbers in the C API, their names and LibTorch's types.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace accel::tensor {

// Pinned; the numbers of accel.h.
enum class DeviceKind : int32_t {
  kCpu = 0,
  kCuda = 1,
  kMeta = 2,
  kMps = 3,
  kMlu = 4,
  kSdaa = 5,
  kMusa = 6,
  kNpu = 7,
  kHpu = 8,
  kXpu = 9,
  kNeuron = 10,
  kXla = 11,
  kMtia = 12,
  kMaia = 13,
  kIpu = 14,
  kVe = 15,
  // LibTorch has place for one device that it does not know (PrivateUse1). It has this number unless the name that its
  // plugin registered is one of the above.
  kOutOfTree = 16,
  kLastKnown = kOutOfTree,
};

// Whether there is a kind with this number.
bool is_device_kind(int32_t number);
// The kind of a name without an index, also of an out-of-tree kind whose plugin is not loaded.
std::optional<DeviceKind> find_device_kind(std::string_view name);
DeviceKind device_kind(c10::Device device);
// "cpu", or the name that an out-of-tree device registered; null for a number that is not a kind. Valid for ever.
const char* device_kind_name(DeviceKind kind);
// LibTorch's type; nothing for an out-of-tree kind whose plugin is not loaded.
std::optional<c10::DeviceType> device_type(DeviceKind kind);
// "cpu, cuda, ...": all kinds, for errors.
std::string known_devices();

}  // namespace accel::tensor
