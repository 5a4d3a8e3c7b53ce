// SPDX-License-Identifier: Apache-2.0
// Commands of the program with their options, as they describe themselves.
#pragma once

#include <string>
#include <vector>

#include "cli/program_command.hpp"

namespace accel::program {

struct DescribedOption {
  std::vector<std::string> names;    // "-m", "--num-processes"
  std::vector<std::string> choices;  // of its value
  bool takes_value = false;
  std::string value;  // "N"; empty: none
  std::string help, group;
};

struct DescribedCommand {
  std::vector<std::string> words;  // "config", "default"; none: the program itself
  std::string summary, usage, description;
  std::vector<std::string> next_words;  // that may follow
  std::vector<DescribedOption> options;
};

// The program itself first.
std::vector<DescribedCommand> describe_commands(const ProgramCommands& all);

}  // namespace accel::program
