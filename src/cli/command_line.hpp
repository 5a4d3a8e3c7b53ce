// SPDX-License-Identifier: Apache-2.0
// Command line of the program `accel`.
#pragma once

#include <string>
#include <vector>

#include "launch/plan/launch_plan.hpp"

namespace accel::program {

enum class Command {
  kShow,
  kLaunch,
  kBeRemote,  // host: ssh runs it for the launcher of another host
  kTest,      // the plan's program has the seconds that it may take, `text` the form of what it says
  kRun,       // a function of cli/command_list.hpp
  kBecome     // the program `text`, which loads libaccel, with the same arguments
};

struct CommandLine {
  Command command = Command::kShow;
  std::string text;                                                 // what is to be shown, or become
  launch::LaunchPlan plan;                                          // of kLaunch
  int (*run)(const std::vector<std::string>& arguments) = nullptr;  // of kRun
  double soak_minutes = 0;                                          // of kTest; 0: it tests the library
};

// `arguments` are those of the program. Options end at `--` or at the name of the program that is to be launched; their
// names may be written with `-` or `_`, and the last of several holds. Anything wrong is an Error with
// Status::kInvalidArgument.
CommandLine parse_command_line(const std::vector<std::string>& arguments);

// Reads the request that the launcher of another host sends to this one through ssh.
launch::LaunchOptions remote_launch();

}  // namespace accel::program
