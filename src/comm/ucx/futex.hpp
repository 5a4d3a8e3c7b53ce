// Sleeping until one of several words of memory changes, which may be shared with other processes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

namespace accel::comm::ucx {

struct FutexWait {
  const std::atomic<uint32_t>* word;
  uint32_t seen;  // it returns at once when the word has another value
};

void wake_sleepers(const std::atomic<uint32_t>& word);
// Returns when one is woken, or the time is over; may return sooner.
void sleep_on_any(const std::vector<FutexWait>& waits, std::chrono::milliseconds time);

}  // namespace accel::comm::ucx
