// Backend plugins: found beside the library and loaded at the first use by several processes.
#pragma once

#include <optional>
#include <string>

#include "comm/backend_plugin.hpp"

namespace accel::comm {

// The file of plugin `name` ("ucx", "nccl"): in $ACCEL_PLUGIN_PATH, beside the library or in its folder accel/, or where it was
// installed. Nothing when there is none.
std::optional<std::string> plugin_path(const std::string& name);

// Loads it (once a process, never unloaded) after preparing the environment that its library reads.
CreateBackend load_plugin(const std::string& name);

}  // namespace accel::comm
