// SPDX-License-Identifier: Apache-2.0
// The command `accel tpu-config`.
#pragma once

#include <string>
#include <vector>

namespace accel::program {

int run_tpu_config(const std::vector<std::string>& arguments);

}  // namespace accel::program
