// SPDX-License-Identifier: Apache-2.0
// The arguments of a command that begin with the folder of a model.
#pragma once

#include <string>
#include <vector>

#include "cli/command_arguments.hpp"

namespace accel::program {

// Returns what follows the folder, at most `most` arguments. kInvalidArgument without a folder, or for more.
std::vector<std::string> take_folder(const CLI::App& app, const ParsedArguments& parsed, std::string& folder,
                                     size_t most);

}  // namespace accel::program
