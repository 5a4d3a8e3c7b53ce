// SPDX-License-Identifier: Apache-2.0
// A time of day as lines of logs have it.
#pragma once

#include <sys/time.h>

#include <string>

namespace accel {

// "2026-11-25T22:30:08.123Z"
std::string utc_time(const timeval& now);

}  // namespace accel
