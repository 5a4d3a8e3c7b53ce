// SPDX-License-Identifier: Apache-2.0
// The thread's latest error. Plain memory: setting it cannot fail, and nothing is cleaned up at the end of the thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "accel.h"

namespace accel::capi {

struct ThreadError {
  static constexpr size_t kCapacity = 4096;

  uint64_t count;         // of the errors set so far
  accel_status_t status;  // ACCEL_OK: there was none
  int32_t rank;
  const char* function;  // a string literal
  char message[kCapacity];
};

ThreadError& thread_error() noexcept;

// Newlines become spaces; too long messages are cut between two characters.
void set_thread_error(accel_status_t status, std::string_view message, const char* function,
                      int32_t rank = -1) noexcept;

}  // namespace accel::capi
