// SPDX-License-Identifier: Apache-2.0
// Decides how the launchers of the hosts find each other, from the options of the command line.
#pragma once

#include "launch/plan/options.hpp"

namespace accel::launch {

// Fills options.hosts from the others. Status::kInvalidArgument for what cannot be.
void plan_hosts(LaunchOptions& options);

}  // namespace accel::launch
