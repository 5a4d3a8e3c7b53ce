// SPDX-License-Identifier: Apache-2.0
// Finds the library's plugins, which are shared libraries beside it.
#pragma once

#include <map>
#include <optional>
#include <string>

namespace accel {

// The file of plugin `name` ("ucx", "nccl", "http"): in a folder of $ACCEL_PLUGIN_PATH, beside the library, in its
// folder accel/, or in the installation folder. Nothing if not found.
std::optional<std::string> plugin_path(const std::string& name);
// The files of all plugins, by their names. Programs without the library say in which folder that is.
std::map<std::string, std::string> plugin_paths(const std::string& folder_of_library = "");

// The error if it is not found.
std::string missing_plugin(const std::string& name);

// Loads a file; it is never unloaded.
void* load_plugin_file(const std::string& path);
// The symbol that the plugin exports under this name.
void* plugin_symbol(void* plugin, const std::string& path, const char* name);

}  // namespace accel
