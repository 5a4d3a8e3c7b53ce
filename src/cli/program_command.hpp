// SPDX-License-Identifier: Apache-2.0
// A command of the program `accel`, and a list of them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace accel::program {

struct ProgramCommand {
  const char* name;     // "launch"
  const char* summary;  // in the help
  // Returns the exit status; null: main() knows it (launch, env, test), or it is one of `program`.
  int (*run)(const std::vector<std::string>& arguments) = nullptr;
  // The program beside this one that runs it with the same arguments, because it loads libaccel; and what shows its
  // help.
  const char* program = nullptr;
  std::optional<std::string> (*shown)(const std::string& command, const std::vector<std::string>& arguments) = nullptr;
  const char* words = "";  // what may follow the name, with blanks between: "default update explain"
  bool is_hidden = false;
};

struct ProgramCommands {
  const ProgramCommand* commands;
  size_t size;

  const ProgramCommand* begin() const { return commands; }
  const ProgramCommand* end() const { return commands + size; }
};

}  // namespace accel::program
