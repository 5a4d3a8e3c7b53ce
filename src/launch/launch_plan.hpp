// The plan of `accel launch`: what is started with which environment, by the precedence command line > environment >
// configuration file > default, and where each value comes from. Nothing has started yet.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "launch/options.hpp"

namespace accel::launch {

struct PlannedSetting {
  std::string value;
  std::string source;  // "command line", "ACCELERATE_MIXED_PRECISION", "job.yaml:3", "default"
};

struct LaunchPlan {
  LaunchOptions options;
  std::string launcher = "processes";  // what starts the ranks; "hosts": one launcher on each machine
  // Those that have a value, by the names of launch_options().
  std::vector<std::pair<std::string, PlannedSetting>> settings;
  std::vector<std::string> notes;  // for the user: what was decided for her, what has no effect
};

// What the command line has, by the names of launch_options().
using GivenOptions = std::map<std::string, std::string>;

// Status::kInvalidArgument for what cannot be, Status::kUnsupported for what is not there.
LaunchPlan plan_launch(const GivenOptions& given, std::vector<std::string> program);

}  // namespace accel::launch
