// SPDX-License-Identifier: Apache-2.0
// The command `accel completions`.
#pragma once

#include <string>
#include <vector>

#include "cli/program_command.hpp"

namespace accel::program {

int run_completions(const std::vector<std::string>& arguments, const ProgramCommands& all);

}  // namespace accel::program
