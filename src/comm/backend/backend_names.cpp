// SPDX-License-Identifier: Apache-2.0
#include "comm/backend/backend_names.hpp"

#include <c10/core/Device.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/split_text.hpp"
#include "comm/backend/plugin.hpp"
#include "os/plugin_file.hpp"

namespace accel::comm {
namespace {

bool is_of_nccl(c10::DeviceType device) { return device == c10::DeviceType::CUDA; }

std::vector<BackendName> default_backends(c10::DeviceType device) {
  const BackendName of_cpu{c10::DeviceType::CPU, "ucx"};
  if (device == c10::DeviceType::CPU) return {of_cpu};
  if (!is_of_nccl(device)) return {of_cpu, {device, find_device_backend(device) != nullptr ? kOfDevice : kStaged}};
  std::vector<BackendName> backends{{device, "nccl"}};
  if (plugin_path("ucx")) backends.push_back(of_cpu);
  return backends;
}

// Part of the name of a file.
bool is_plugin_name(const std::string& name) {
  constexpr size_t kLongest = 64;
  return !name.empty() && name.size() <= kLongest && std::all_of(name.begin(), name.end(), [](char letter) {
    return ('a' <= letter && letter <= 'z') || ('0' <= letter && letter <= '9') || letter == '_' || letter == '-';
  });
}

// Whether a plugin of this name is found, or is one of this project's, which says itself why it is missing.
bool is_known(const std::string& name) {
  return name == kStaged || name == kOfDevice || name == "ucx" || name == "nccl" || plugin_path(name).has_value();
}

// "xpu:staged", or "staged" for the device of the state.
BackendName parse_given(const std::string& item, c10::DeviceType device) {
  const std::string own = c10::DeviceTypeName(device, /*lower_case=*/true);
  const size_t colon = item.find(':');
  const std::string of = colon == std::string::npos ? own : item.substr(0, colon);
  const std::string name = colon == std::string::npos ? item : item.substr(colon + 1);
  require(of == own || of == "cpu", Status::kInvalidArgument, "backend has '", item, "' and the state computes on ",
          own, "; expected backends of ", own, device == c10::DeviceType::CPU ? "" : " and cpu");
  const bool is_cpu = of == "cpu";
  const bool is_possible = is_plugin_name(name) && is_known(name) &&
                           (is_cpu ? name != kStaged && name != kOfDevice && name != "nccl"
                                   : name != "ucx" && (name != "nccl" || is_of_nccl(device)));
  require(is_possible, Status::kInvalidArgument, "backend has '", item, "', and '", name, "' does not send tensors of ",
          of, "; expected ",
          is_cpu               ? "ucx"
          : is_of_nccl(device) ? "nccl or staged"
                               : "staged",
          ", or the NAME of a plugin libaccel_NAME.so in ACCEL_PLUGIN_PATH");
  require(name != kOfDevice || find_device_backend(device) != nullptr, Status::kInvalidArgument, "backend has '", item,
          "', and the plugin of ", of, " has no collectives of its own; expected staged");
  return {is_cpu ? c10::DeviceType::CPU : device, name};
}

}  // namespace

std::vector<BackendName> parse_backend_names(const std::string& names) {
  std::vector<BackendName> backends;
  for (const std::string& item : split_text(names)) {
    const size_t colon = item.find(':');
    const bool has_device = colon != std::string::npos;
    backends.push_back(
        {c10::Device(has_device ? item.substr(0, colon) : "cpu").type(), has_device ? item.substr(colon + 1) : item});
  }
  return backends;
}

std::string choose_backends(c10::DeviceType device, const std::string& given) {
  std::vector<BackendName> backends = default_backends(device);
  std::vector<c10::DeviceType> given_devices;
  for (const std::string& item : split_text(given)) {
    const BackendName named = parse_given(item, device);
    require(std::find(given_devices.begin(), given_devices.end(), named.device) == given_devices.end(),
            Status::kInvalidArgument, "backend has '", item, "' and another backend of ",
            c10::DeviceTypeName(named.device, /*lower_case=*/true), " before it; expected one for each device");
    given_devices.push_back(named.device);
    const auto same = std::find_if(backends.begin(), backends.end(),
                                   [&](const BackendName& known) { return known.device == named.device; });
    if (same != backends.end())
      same->name = named.name;
    else
      backends.insert(backends.begin(), named);
  }
  const bool is_staged =
      std::any_of(backends.begin(), backends.end(), [](const auto& one) { return one.name == kStaged; });
  if (is_staged)  // the CPU's comes first: what is staged shares its connections
    std::stable_partition(backends.begin(), backends.end(),
                          [](const auto& one) { return one.device == c10::DeviceType::CPU; });
  if (backends.size() == 1 && device == c10::DeviceType::CPU) return backends[0].name;
  std::string names;
  for (const auto& [of_device, name] : backends)
    names += text(names.empty() ? "" : ",", c10::DeviceTypeName(of_device, /*lower_case=*/true), ":", name);
  return names;
}

std::string staged_devices(const std::string& names) {
  std::string devices;
  for (const auto& [device, name] : parse_backend_names(names))
    if (name == kStaged) devices += text(devices.empty() ? "" : ", ", c10::DeviceTypeName(device, true));
  return devices;
}

}  // namespace accel::comm
