// SPDX-License-Identifier: Apache-2.0
// Counts the memory of tensors that a thread allocates and releases.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <memory>

namespace accel::tests {

// Bytes of tensors on the thread that counts, and the most there were. LibTorch's own allocators report to it.
struct CountedMemory final : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override {
    now += size;
    peak = std::max(peak, now);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t now = 0, peak = 0;
};

// What `body` leaves allocated, and the most that it had allocated.
template <typename Body>
CountedMemory memory_of(Body&& body) {
  const auto memory = std::make_shared<CountedMemory>();
  {
    const c10::DebugInfoGuard counting(c10::DebugInfoKind::PROFILER_STATE, memory);
    body();
  }
  return *memory;
}

}  // namespace accel::tests
