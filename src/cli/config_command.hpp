// SPDX-License-Identifier: Apache-2.0
// The command `accel config`.
#pragma once

#include <string>
#include <vector>

namespace accel::program {

int run_config(const std::vector<std::string>& arguments);

}  // namespace accel::program
