// SPDX-License-Identifier: Apache-2.0
// The hidden command `accel manual`, with which the build makes the manual pages.
#pragma once

#include <string>
#include <vector>

#include "cli/program_command.hpp"

namespace accel::program {

int run_manual(const std::vector<std::string>& arguments, const ProgramCommands& all);

}  // namespace accel::program
