// SPDX-License-Identifier: Apache-2.0
// How many bytes of a model each device may have.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace accel::bigmodel {

// Places with their bytes, in the order in which they are filled: accelerators by number, then others by name, "cpu",
// "disk".
using MaxMemory = std::vector<std::pair<std::string, double>>;

bool is_accelerator(const std::string& place);

// "25694208"; with a fraction where truth values are counted as bits.
std::string text_of_bytes(double bytes);

// The free memory of every accelerator and of the host. Devices that share the host's memory have no "cpu" beside them.
// @accelerate get_max_memory
MaxMemory available_memory();

// In the order of MaxMemory. Throws kInvalidArgument for a place that cannot be one, that is listed twice, or with less
// than 0 bytes. Accelerators that are not there are warned about in the log.
MaxMemory ordered_memory(MaxMemory given);

}  // namespace accel::bigmodel
