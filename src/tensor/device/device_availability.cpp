// SPDX-License-Identifier: Apache-2.0
#include "tensor/device/device_availability.hpp"

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "base/error.hpp"
#include "tensor/device/accelerator_library.hpp"
#include "tensor/device/device_plugins.hpp"

namespace accel::tensor {
namespace {

bool is_host(DeviceKind kind) { return kind == DeviceKind::kCpu || kind == DeviceKind::kMeta; }

std::string reason_of_plugin(DeviceKind kind) {
  const char* const name = device_kind_name(kind);
  if (find_guard(kind) != nullptr) return text("the plugin of ", name, " is loaded and finds no device");
  const std::string& loaded = out_of_tree_name();
  return text("the plugin of ", name == nullptr ? "an out-of-tree device" : name,
              " is not loaded: give its library in ACCEL_DEVICE_PLUGINS",
              loaded.empty() ? "" : text(" (the plugin that is loaded is of '", loaded, "')"));
}

constexpr DeviceKind kOrder[] = {DeviceKind::kOutOfTree, DeviceKind::kMps,   DeviceKind::kMlu, DeviceKind::kSdaa,
                                 DeviceKind::kMusa,      DeviceKind::kNpu,   DeviceKind::kHpu, DeviceKind::kCuda,
                                 DeviceKind::kXpu,       DeviceKind::kNeuron};

}  // namespace

int64_t device_count(DeviceKind kind) {
  if (is_host(kind)) return 1;
  load_device_plugins_of_environment();
  if (is_built_in(kind) && !accelerator_obstacle(kind).empty()) return 0;
  const auto* const guard = find_guard(kind);
  return guard == nullptr ? 0 : guard->deviceCount();
}

std::string unavailable_reason(DeviceKind kind) {
  if (device_count(kind) == 0) return is_built_in(kind) ? accelerator_obstacle(kind) : reason_of_plugin(kind);
  // Without them LibTorch's autograd refuses each backward.
  if (device_type(kind) == kOutOfTreeType && !at::isPrivateUse1HooksRegistered())
    return text("the plugin of ", device_kind_name(kind),
                " registers no hooks (at::RegisterPrivateUse1HooksInterface), which LibTorch's autograd needs");
  return "";
}

void require_device(c10::Device device) {
  if (device.is_cpu() || device.is_meta()) return;
  const DeviceKind kind = device_kind(device);
  const std::string reason = unavailable_reason(kind);
  require(reason.empty(), Status::kUnsupported, "device ", device.str(), " is not there: ", reason);
  const int64_t count = device_count(kind);
  require(device.index() < count, Status::kInvalidArgument, "device ", device.str(), " is not there; this machine has ",
          count, " of this kind, ", device_kind_name(kind), ":0 to ", device_kind_name(kind), ":", count - 1);
}

std::optional<c10::Device> loaded_accelerator() {
  for (const DeviceKind kind : kOrder) {
    const auto* const guard = find_guard(kind);
    if (guard != nullptr && guard->deviceCount() > 0) return c10::Device(guard->type());
  }
  return std::nullopt;
}

std::optional<c10::Device> default_accelerator() {
  for (const DeviceKind kind : kOrder)
    if (unavailable_reason(kind).empty()) return c10::Device(*device_type(kind));
  return std::nullopt;
}

}  // namespace accel::tensor
