// The token of a job.
#pragma once

#include <string>

namespace accel::launch {

// A new random token for a job, which identifies ranks that connect to a wrong port.
std::string job_token();

}  // namespace accel::launch
