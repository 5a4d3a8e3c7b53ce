// SPDX-License-Identifier: Apache-2.0
// Futex: sleeps until one of several words of memory changes; they may be shared with other processes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

namespace accel::comm::ucx {

struct FutexWait {
  const std::atomic<uint32_t>* word;
  uint32_t seen;  // returns at once if the word has another value
};

void wake_sleepers(const std::atomic<uint32_t>& word);
// Returns when one is woken or the time is over; may return earlier.
void sleep_on_any(const std::vector<FutexWait>& waits, std::chrono::milliseconds time);

}  // namespace accel::comm::ucx
