#include "tensor/device/device.hpp"

#include <charconv>
#include <memory>

#include "base/error.hpp"
#include "tensor/device/device_availability.hpp"
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

constexpr int64_t kLargestIndex = 127;  // c10::DeviceIndex has eight bits

bool index_fits(c10::DeviceType type, int64_t index) {
  const bool is_one = type == c10::DeviceType::CPU || type == c10::DeviceType::Meta;
  return index >= -1 && index <= (is_one ? 0 : kLargestIndex);
}

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

c10::Device device_from_numbers(DeviceNumbers numbers) {
  const DeviceName* const device = find_kind(numbers.kind);
  require(device != nullptr, Status::kInvalidArgument, "device type ", numbers.kind,
          " is not known; expected 0 (cpu), 1 (cuda) and so on, up to ", static_cast<int32_t>(DeviceKind::kLastKnown));
  require(is_registered(*device), Status::kUnsupported, unavailable_reason(device->kind));
  require(index_fits(device->type, numbers.index), Status::kInvalidArgument, "device index ", numbers.index, " of ",
          device_kind_name(device->kind), " is out of range; expected -1 for the current device or a number from 0");
  return c10::Device(device->type, static_cast<c10::DeviceIndex>(numbers.index));
}

DeviceKind device_kind(c10::Device device) {
  for (const DeviceName& known : kDevices)
    if (known.type == device.type() && is_registered(known)) return known.kind;
  fail(Status::kUnsupported, "device ", device.str(), " has no number here; expected one of ", known_devices());
}

DeviceNumbers device_numbers(c10::Device device) { return {static_cast<int32_t>(device_kind(device)), device.index()}; }

std::optional<c10::Device> find_device(std::string_view text) {
  const size_t colon = text.find(':');
  const DeviceName* const device = find_name(text.substr(0, colon));
  if (device == nullptr || !is_registered(*device)) return std::nullopt;
  if (colon == std::string_view::npos) return c10::Device(device->type);
  const std::string_view digits = text.substr(colon + 1);
  const char* const end = digits.data() + digits.size();
  uint32_t index = 0;  // without a sign
  const auto [stop, error] = std::from_chars(digits.data(), end, index);
  if (error != std::errc() || stop != end || !index_fits(device->type, index)) return std::nullopt;
  return c10::Device(device->type, static_cast<c10::DeviceIndex>(index));
}

c10::Device parse_device(std::string_view text) {
  if (const std::optional<c10::Device> device = find_device(text)) return *device;
  const auto kind = find_device_kind(text.substr(0, text.find(':')));
  require(!kind || device_type(*kind), Status::kUnsupported, kind ? unavailable_reason(*kind) : "");
  fail(Status::kInvalidArgument, "device '", text, "' is not known; expected one of ", known_devices(),
       ", and ':N' for the device of this number");
}

}  // namespace accel::tensor
