// A command of the program `accel`, and a list of them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace accel::program {

struct ProgramCommand {
  const char* name;     // "launch"
  const char* summary;  // in the help
  // Returns the exit status; null: main() knows it (launch, env, test), or it is one of the program accel-checkpoint.
  int (*run)(const std::vector<std::string>& arguments) = nullptr;
  bool is_of_checkpoints = false;
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
