// SPDX-License-Identifier: Apache-2.0
#include "tensor/device/device_kind.hpp"

#include <memory>

#include "base/error.hpp"
#include "tensor/device/device_plugins.hpp"

namespace accel::tensor {
namespace {

struct DeviceName {
  DeviceKind kind;
  c10::DeviceType type;
  const char* name;  // null: what the plugin registered
};

// LibTorch's other types compute nothing by themselves: "hip" is called cuda in a LibTorch for ROCm, "lazy" records
// operators for another device.
constexpr DeviceName kDevices[] = {
    {DeviceKind::kCpu, c10::DeviceType::CPU, "cpu"},    {DeviceKind::kCuda, c10::DeviceType::CUDA, "cuda"},
    {DeviceKind::kMeta, c10::DeviceType::Meta, "meta"}, {DeviceKind::kMps, c10::DeviceType::MPS, "mps"},
    {DeviceKind::kMlu, kOutOfTreeType, "mlu"},          {DeviceKind::kSdaa, kOutOfTreeType, "sdaa"},
    {DeviceKind::kMusa, kOutOfTreeType, "musa"},        {DeviceKind::kNpu, kOutOfTreeType, "npu"},
    {DeviceKind::kHpu, c10::DeviceType::HPU, "hpu"},    {DeviceKind::kXpu, c10::DeviceType::XPU, "xpu"},
    {DeviceKind::kNeuron, kOutOfTreeType, "neuron"},    {DeviceKind::kXla, c10::DeviceType::XLA, "xla"},
    {DeviceKind::kMtia, c10::DeviceType::MTIA, "mtia"}, {DeviceKind::kMaia, c10::DeviceType::MAIA, "maia"},
    {DeviceKind::kIpu, c10::DeviceType::IPU, "ipu"},    {DeviceKind::kVe, c10::DeviceType::VE, "ve"},
    {DeviceKind::kOutOfTree, kOutOfTreeType, nullptr},
};

const DeviceName* find_kind(int32_t number) {
  for (const DeviceName& device : kDevices)
    if (static_cast<int32_t>(device.kind) == number) return &device;
  return nullptr;
}

const DeviceName* find_name(std::string_view name) {
  for (const DeviceName& device : kDevices)
    if (device.name != nullptr && name == device.name) return &device;
  return !name.empty() && name == out_of_tree_name() ? find_kind(static_cast<int32_t>(DeviceKind::kOutOfTree))
                                                     : nullptr;
}

// Whether LibTorch's device of this type is of this kind now.
bool is_registered(const DeviceName& device) {
  if (device.type != kOutOfTreeType) return true;
  const std::string& name = out_of_tree_name();
  if (device.name != nullptr) return name == device.name;
  return !name.empty() && find_name(name) == &device;
}

}  // namespace

bool is_device_kind(int32_t number) { return find_kind(number) != nullptr; }

std::optional<c10::DeviceType> device_type(DeviceKind kind) {
  const DeviceName* const device = find_kind(static_cast<int32_t>(kind));
  return device != nullptr && is_registered(*device) ? std::optional(device->type) : std::nullopt;
}

const char* device_kind_name(DeviceKind kind) {
  const DeviceName* const device = find_kind(static_cast<int32_t>(kind));
  if (device == nullptr) return nullptr;
  if (device->name != nullptr) return device->name;
  return is_registered(*device) ? out_of_tree_name().c_str() : nullptr;
}

std::optional<DeviceKind> find_device_kind(std::string_view name) {
  const DeviceName* const device = find_name(name);
  return device == nullptr ? std::nullopt : std::optional(device->kind);
}

std::string known_devices() {
  std::string names;
  for (const DeviceName& device : kDevices)
    if (const char* const name = device_kind_name(device.kind))
      names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

DeviceKind device_kind(c10::Device device) {
  for (const DeviceName& known : kDevices)
    if (known.type == device.type() && is_registered(known)) return known.kind;
  fail(Status::kUnsupported, "device ", device.str(), " has no number here; expected one of ", known_devices());
}

}  // namespace accel::tensor
