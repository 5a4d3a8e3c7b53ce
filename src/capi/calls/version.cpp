// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "accel.h"
#include "base/torch_compat.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/object.hpp"
#include "capi/calls/version.hpp"
#include "capi/values/buffer.hpp"
#include "json/json.hpp"
#include "os/plugin_file.hpp"
#include "tensor/device/device.hpp"
#include "tensor/device/device_availability.hpp"

namespace accel::capi {
namespace {

constexpr std::array<std::string_view, 3> kPlugins = {"ucx", "nccl", "http"};
constexpr std::string_view kTorchScript = "torchscript";

// "ucx", and "KIND_graphs" for a type of devices.
bool is_plugin(std::string_view feature) {
  if (std::find(kPlugins.begin(), kPlugins.end(), feature) != kPlugins.end()) return true;
  constexpr std::string_view kGraphs = "_graphs";
  if (feature.size() <= kGraphs.size() || feature.substr(feature.size() - kGraphs.size()) != kGraphs) return false;
  return tensor::find_device_kind(feature.substr(0, feature.size() - kGraphs.size())).has_value();
}

bool is_available(std::string_view feature) {
  if (is_plugin(feature)) return plugin_path(std::string(feature)).has_value();
  if (const auto kind = tensor::find_device_kind(feature)) return tensor::unavailable_reason(*kind).empty();
  return feature == kTorchScript;
}

std::string unavailable_reason(std::string_view feature) {
  if (is_plugin(feature)) {
    const std::string plugin(feature);
    return plugin_path(plugin) ? "" : missing_plugin(plugin);
  }
  if (const auto kind = tensor::find_device_kind(feature)) return tensor::unavailable_reason(*kind);
  require(
      feature == kTorchScript, Status::kInvalidArgument, "feature is '", feature,
      "'; expected ucx, nccl, http, torchscript or a type of devices, also with _graphs: ", tensor::known_devices());
  return "";
}

}  // namespace

ACCEL_FUNCTION void accel_version(int32_t* out_major, int32_t* out_minor, int32_t* out_patch) {
  if (out_major != nullptr) *out_major = ACCEL_VERSION_MAJOR;
  if (out_minor != nullptr) *out_minor = ACCEL_VERSION_MINOR;
  if (out_patch != nullptr) *out_patch = ACCEL_VERSION_PATCH;
}

ACCEL_FUNCTION accel_status_t accel_build_info(accel_buffer_t* out) {
  return guarded(__func__, out, [&] {
    Json::Members plugins;
    for (auto& [name, path] : plugin_paths()) plugins.emplace_back(name, Json(path));
    Json::Members info;
    info.emplace_back("version", library_version());
    info.emplace_back("libtorch", TORCH_VERSION);
    info.emplace_back("compiler", __VERSION__);
    info.emplace_back("plugins", std::move(plugins));
    return new_buffer(print_json(Json(std::move(info))));
  });
}

ACCEL_FUNCTION int32_t accel_is_available(const char* feature) {
  return guarded_value(__func__, -1, [&] { return is_available(check_pointer(feature, "feature")) ? 1 : 0; });
}

ACCEL_FUNCTION accel_status_t accel_unavailable_reason(const char* feature, accel_buffer_t* out) {
  return guarded(__func__, out, [&] { return new_buffer(unavailable_reason(check_pointer(feature, "feature"))); });
}

ACCEL_FUNCTION int64_t accel_debug_live_objects(void) { return live_objects(); }

}  // namespace accel::capi
