// SPDX-License-Identifier: Apache-2.0
// The memory of the host that this process can still use.
#pragma once

#include <cstdint>
#include <string>

namespace accel {

// Bytes that can be allocated without swapping: what the kernel estimates, or less in a container with a limit.
int64_t available_host_memory();

// Reads the files below `root`, which is "" for the system's own.
int64_t available_host_memory(const std::string& root);

}  // namespace accel
