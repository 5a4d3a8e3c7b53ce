// SPDX-License-Identifier: Apache-2.0
// The options of `accel launch` that are not fields of the library's options.
#pragma once

#include <vector>

#include "launch/plan/launch_option.hpp"

namespace accel::launch {

std::vector<LaunchOption> own_launch_options();

}  // namespace accel::launch
