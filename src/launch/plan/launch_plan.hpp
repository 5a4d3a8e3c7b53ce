// SPDX-License-Identifier: Apache-2.0
// The plan of `accel launch`: what is started with which environment, by the precedence command line > environment >
// configuration file > default, and where each value comes from. Nothing has started yet.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launch/plan/launch_settings.hpp"
#include "launch/plan/options.hpp"

namespace accel::launch {

struct LaunchPlan {
  LaunchOptions options;
  std::string launcher = "processes";  // what starts the ranks; "hosts": one launcher on each machine
  // The settings that have a value, by the names of launch_options().
  std::vector<std::pair<std::string, PlannedSetting>> settings;
  std::vector<std::string> notes;  // for the user: what was decided for her, what has no effect
};

// Status::kInvalidArgument for what cannot be, Status::kUnsupported for what is not there.
LaunchPlan plan_launch(const GivenOptions& given, std::vector<std::string> program);

// The settings alone, with what they win over; defaults of what is not turned on are left out. Also those of which no
// plan can be made.
struct ExplainedSetting {
  std::string name;
  PlannedSetting setting;
  std::vector<PlannedSetting> overruled;  // in the order of precedence
};
struct ExplainedSettings {
  std::string file;  // that was read; empty: none
  std::vector<ExplainedSetting> settings;
};
ExplainedSettings explain_settings(const GivenOptions& given);

}  // namespace accel::launch
