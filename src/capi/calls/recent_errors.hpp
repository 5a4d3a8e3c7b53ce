// SPDX-License-Identifier: Apache-2.0
// The process's latest errors, for applications that cannot query the threads of their calls. Plain memory, like the
// thread's own error, so that recording cannot fail.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "accel.h"
#include "capi/calls/thread_error.hpp"

namespace accel::capi {

struct RecentError {
  int64_t number;  // from 1, in the order in which they were set
  int64_t thread;  // the kernel's number of it
  accel_status_t status;
  int32_t rank;
  const char* function;
  std::string message;
};

void note_error(const ThreadError& error) noexcept;

// Returns the errors numbered above `after`, the oldest first.
std::vector<RecentError> recent_errors(int64_t after);

}  // namespace accel::capi
