// SPDX-License-Identifier: Apache-2.0
// Loader of backend plugins, which are beside the library and loaded when the first group of several processes is
// created.
#pragma once

#include <c10/core/DeviceType.h>

#include <string>

#include "comm/backend/backend_plugin.hpp"

namespace accel::comm {

// Loads the plugin `name` ("ucx", "nccl") at the first call. While it is loaded the first time, the environment has
// additional variables for the libraries that it needs, which other threads may see.
CreateBackend load_plugin(const std::string& name);

// The backend factory exported by an out-of-tree device's plugin, or null.
CreateBackend find_device_backend(c10::DeviceType device);

}  // namespace accel::comm
