// Loader of backend plugins, which are beside the library and loaded when the first group of several processes is
// created.
#pragma once

#include <c10/core/DeviceType.h>

#include <optional>
#include <string>

#include "comm/backend_plugin.hpp"

namespace accel::comm {

// The file of plugin `name` ("ucx", "nccl"): in $ACCEL_PLUGIN_PATH, beside the library, in its folder accel/, or in the
// installation folder. Nothing if not found.
std::optional<std::string> plugin_path(const std::string& name);

// The error if it is not found.
std::string missing_plugin(const std::string& name);

// Loads it; it is never unloaded. While it is loaded the first time, the environment has additional variables for the
// libraries that it needs, which other threads may see.
CreateBackend load_plugin(const std::string& name);

// That of the plugin of an out-of-tree device; null if it exports none, and for other devices.
CreateBackend find_device_backend(c10::DeviceType device);

}  // namespace accel::comm
