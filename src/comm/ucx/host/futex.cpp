// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/host/futex.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <ctime>

namespace accel::comm::ucx {
namespace {

constexpr long kFutexWaitv = 449;  // of all processors; C libraries from before Linux 5.16 have no name for it
constexpr size_t kMostWaits = 128;
constexpr auto kBlindSleep = std::chrono::milliseconds(1);  // without it, while several words may change

struct WaitvEntry {  // futex_waitv of newer headers
  uint64_t value;
  uint64_t address;
  uint32_t flags;
  uint32_t reserved;
};
constexpr uint32_t kShared32Bits = 2;  // FUTEX2_SIZE_U32

void sleep_on_first(const FutexWait& wait, std::chrono::milliseconds time) {
  const timespec limit{static_cast<time_t>(time.count() / 1000), static_cast<long>(time.count() % 1000 * 1000000)};
  syscall(SYS_futex, reinterpret_cast<const uint32_t*>(wait.word), FUTEX_WAIT, wait.seen, &limit, nullptr, 0);
}

}  // namespace

void wake_sleepers(const std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<const uint32_t*>(&word), FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

void sleep_on_any(const std::vector<FutexWait>& waits, std::chrono::milliseconds time) {
  if (waits.size() == 1) return sleep_on_first(waits[0], time);
  static std::atomic<bool> is_missing{false};
  if (!is_missing.load(std::memory_order_relaxed)) {
    std::array<WaitvEntry, kMostWaits> entries;
    const size_t count = std::min(waits.size(), kMostWaits);
    for (size_t i = 0; i < count; i++)
      entries[i] = {waits[i].seen, reinterpret_cast<uintptr_t>(waits[i].word), kShared32Bits, 0};
    timespec end{};
    clock_gettime(CLOCK_MONOTONIC, &end);
    const int64_t nanoseconds = end.tv_nsec + time.count() % 1000 * 1000000;
    end.tv_sec += static_cast<time_t>(time.count() / 1000 + nanoseconds / 1000000000);
    end.tv_nsec = static_cast<long>(nanoseconds % 1000000000);
    if (syscall(kFutexWaitv, entries.data(), static_cast<unsigned>(count), 0U, &end, CLOCK_MONOTONIC) >= 0) return;
    if (errno != ENOSYS && errno != EPERM) return;
    is_missing.store(true);
  }
  sleep_on_first(waits[0], std::min(time, kBlindSleep));
}

}  // namespace accel::comm::ucx
