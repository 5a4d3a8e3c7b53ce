// Environment variables with the rank and the job, and the port of the rendezvous.
#pragma once

#include <string>
#include <vector>

#include "launch/job_place.hpp"
#include "launch/options.hpp"

namespace accel::launch {

// A port of this machine that is free now.
int free_port();

// A new random token for a job, which identifies ranks that connect to a wrong port.
std::string job_token();

// "NAME=value" for every variable of the process that starts as `local_rank` at `place`: the launcher's own variables,
// with those of the job set or replaced.
std::vector<std::string> rank_environment(const LaunchOptions& options, const JobPlace& place, int local_rank);

}  // namespace accel::launch
