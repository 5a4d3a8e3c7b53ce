#include "comm/backend_names.hpp"

#include <c10/core/Device.h>

#include "base/error.hpp"
#include "base/plugin_file.hpp"
#include "base/split_text.hpp"
#include "comm/plugin.hpp"

namespace accel::comm {

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

std::string choose_backends(c10::DeviceType device) {
  if (device == c10::DeviceType::CPU) return "ucx";
  if (device == c10::DeviceType::CUDA) return plugin_path("ucx") ? "cuda:nccl,cpu:ucx" : "cuda:nccl";
  return text("cpu:ucx,", c10::DeviceTypeName(device, /*lower_case=*/true), ":",
              find_device_backend(device) != nullptr ? kOfDevice : kStaged);
}

std::string staged_devices(const std::string& names) {
  std::string devices;
  for (const auto& [device, name] : parse_backend_names(names))
    if (name == kStaged) devices += text(devices.empty() ? "" : ", ", c10::DeviceTypeName(device, true));
  return devices;
}

}  // namespace accel::comm
