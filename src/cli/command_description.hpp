// SPDX-License-Identifier: Apache-2.0
// Commands as data, for completions and manual pages: every command prints itself when its only argument is kDescribe.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace accel::program {

inline constexpr const char* kDescribe = "--describe-command";

// {"usage": "usage: accel launch [OPTION ...]", "description": ..., "options": [{"names": ["-m", "--module"], "value":
// "N", "takes_value": true, "help": ..., "group": ...}]}
std::string describe_command(const CLI::App& app);

}  // namespace accel::program
