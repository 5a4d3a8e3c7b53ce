// SPDX-License-Identifier: Apache-2.0
// Reports that are shown instead of starting something: the plan of `accel launch` and its options, the report of
// `accel env`.
#pragma once

#include <string>

#include "json/json.hpp"
#include "launch/plan/launch_plan.hpp"

namespace accel::program {

// {"launcher", "command", "environment": {of every rank}, "ranks": [{"rank", "local_rank", "environment"}], "settings":
// {name: {"value", "source"}}, "notes"}. A port that is chosen at the start is left out.
Json json_of(const launch::LaunchPlan& plan);
std::string describe(const launch::LaunchPlan& plan);

// [{"name", "aliases", "kind", "has_value", "choices", "default", "group", "help", "variable", "reason"}]; "default" is
// that of Accelerate's parser, and missing where the option is not Accelerate's.
Json list_launch_options();

// One line for each value of a report, those of objects with their name in front.
std::string lines_of(const Json& report);

}  // namespace accel::program
