// SPDX-License-Identifier: Apache-2.0
// The options of `accel launch`: those of Accelerate's launcher, which all have a meaning here or the reason why not,
// those of this launcher, and one for each field of accel_state_options_t that a rank reads from a variable.
#pragma once

#include <string_view>
#include <vector>

#include "launch/plan/launch_option.hpp"

namespace accel::launch {

// In the order of the help.
const std::vector<LaunchOption>& launch_options();
// Null if there is none. Aliases are names, too.
const LaunchOption* find_launch_option(std::string_view name);

// The missing feature that a value asks for; null: nothing.
const char* refused_meaning(const LaunchOption& option, std::string_view value);

}  // namespace accel::launch
