// Backend plugins: found beside the library and loaded at the first use by several processes.
#pragma once

#include <optional>
#include <string>

#include "comm/backend_plugin.hpp"

namespace accel::comm {

// The file of plugin `name` ("ucx", "nccl"): in $ACCEL_PLUGIN_PATH, beside the library or in its folder accel/, or
// where it was installed. Nothing when there is none.
std::optional<std::string> plugin_path(const std::string& name);

// Loads it; it is never unloaded. The first time, the environment has variables for the libraries below meanwhile, for
// which other threads may read it.
CreateBackend load_plugin(const std::string& name);

}  // namespace accel::comm
