// SPDX-License-Identifier: Apache-2.0
// The commands of the program `accel`.
#pragma once

#include <string>

#include "cli/program_command.hpp"

namespace accel::program {

ProgramCommands program_commands();
// Null if there is none.
const ProgramCommand* find_program_command(const std::string& name);

}  // namespace accel::program
