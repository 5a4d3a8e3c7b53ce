// The environment variables by which a rank learns its place, and the port at which the ranks meet.
#pragma once

#include <string>
#include <vector>

#include "launch/options.hpp"

namespace accel::launch {

// A port of this machine that nobody uses now.
int free_port();

// A new random name for a job. It lets ranks that come to the wrong port be told apart.
std::string job_token();

// "NAME=value" for every variable of the process that starts on this machine as `local_rank`: the launcher's own
// variables, with those of the job set or replaced. On several machines, whose launchers cannot agree on a `token`, the
// ranks have the user's ACCEL_JOB_TOKEN or none.
std::vector<std::string> rank_environment(const LaunchOptions& options, int local_rank, int port,
                                          const std::string& token);

}  // namespace accel::launch
