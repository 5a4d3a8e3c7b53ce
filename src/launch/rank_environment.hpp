// Environment variables with the rank and the job, and the port of the rendezvous.
#pragma once

#include <string>
#include <vector>

#include "launch/options.hpp"

namespace accel::launch {

// A port of this machine that is free now.
int free_port();

// A new random token for a job, which identifies ranks that connect to a wrong port.
std::string job_token();

// "NAME=value" for every variable of the process that starts on this machine as `local_rank`: the launcher's own
// variables, with those of the job set or replaced. On several machines, whose launchers cannot agree on a `token`, the
// ranks have the user's ACCEL_JOB_TOKEN or none.
std::vector<std::string> rank_environment(const LaunchOptions& options, int local_rank, int port,
                                          const std::string& token);

}  // namespace accel::launch
