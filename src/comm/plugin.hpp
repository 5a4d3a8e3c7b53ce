// Backend plugins: found beside the library and loaded at the first use by several processes.
#pragma once

#include <optional>
#include <string>

#include "base/environment.hpp"
#include "comm/backend_plugin.hpp"

namespace accel::comm {

// The file of plugin `name` ("ucx", "nccl"): in $ACCEL_PLUGIN_PATH, beside the library or in its folder accel/, or
// where it was installed. Nothing when there is none.
std::optional<std::string> plugin_path(const std::string& name);

// Loads it; it is never unloaded.
CreateBackend load_plugin(const std::string& name);

// What the libraries below must find in the environment while a plugin is loaded and a backend made. What the user has
// set stays.
EnvironmentDefaults backend_environment();

}  // namespace accel::comm
