// What `accel launch` shows instead of starting something: its plan, and its options.
#pragma once

#include <string>

#include "base/json.hpp"
#include "launch/launch_plan.hpp"

namespace accel::program {

// {"launcher", "command", "environment": {of every rank}, "ranks": [{"rank", "local_rank", "environment"}], "settings":
// {name: {"value", "source"}}, "notes"}. A port that is chosen at the start is left out.
Json json_of(const launch::LaunchPlan& plan);
std::string describe(const launch::LaunchPlan& plan);

// [{"name", "aliases", "kind", "has_value", "choices", "default", "group", "help", "variable", "reason"}]; "default" is
// that of Accelerate's parser, and missing where the option is not Accelerate's.
Json list_launch_options();

}  // namespace accel::program
