// SPDX-License-Identifier: Apache-2.0
// Environment variables with the rank and the job.
#pragma once

#include <string>
#include <vector>

#include "launch/plan/host_ranks.hpp"
#include "launch/plan/options.hpp"

namespace accel::launch {

// The variables that the launcher sets for the rank that starts as `local_rank` at `host_ranks`.
Variables rank_variables(const LaunchOptions& options, const HostRanks& host_ranks, int local_rank);

// "NAME=value" for every variable of that process: the launcher's own variables, with those above set or replaced.
std::vector<std::string> rank_environment(const LaunchOptions& options, const HostRanks& host_ranks, int local_rank);

}  // namespace accel::launch
