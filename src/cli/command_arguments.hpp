// SPDX-License-Identifier: Apache-2.0
// Arguments of one command: options, then the rest, with the help and the errors of all commands.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

namespace accel::program {

struct ParsedArguments {
  std::optional<std::string> shown;  // instead of doing anything
  std::vector<std::string> rest;
  bool ended_options = false;  // by `--`, which is not among the rest
};

// Options end at `--`, or at the first argument that is none. Anything wrong is Status::kInvalidArgument.
ParsedArguments parse(CLI::App& app, const std::vector<std::string>& arguments);

// Options may also stand behind other arguments, which are the rest.
ParsedArguments parse_anywhere(CLI::App& app, const std::vector<std::string>& arguments);

// Parses commands that have options alone: anything else is an error.
ParsedArguments parse_all(CLI::App& app, const std::vector<std::string>& arguments);
// Prints what is to be shown instead; false: nothing is.
bool is_shown(const ParsedArguments& parsed);

// Adds --help behind the other options; `arguments` is what follows the name in the line of usage.
void add_help(CLI::App& app, const char* arguments);

}  // namespace accel::program
