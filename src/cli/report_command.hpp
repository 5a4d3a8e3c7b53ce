// SPDX-License-Identifier: Apache-2.0
// The command `accel report`.
#pragma once

#include <string>
#include <vector>

namespace accel::program {

int run_report(const std::vector<std::string>& arguments);

}  // namespace accel::program
