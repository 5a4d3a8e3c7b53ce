// SPDX-License-Identifier: Apache-2.0
// The command `accel estimate-memory`.
#pragma once

#include <string>
#include <vector>

namespace accel::program {

// Returns the exit status. Wrong arguments are a std::invalid_argument or an Error of Status::kInvalidArgument, what
// the library refuses is a cpp::Error.
int run_estimate_memory(const std::vector<std::string>& arguments);

}  // namespace accel::program
