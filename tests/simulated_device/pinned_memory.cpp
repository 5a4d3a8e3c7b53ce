// SPDX-License-Identifier: Apache-2.0
#include "pinned_memory.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "memory.hpp"
#include "settings.hpp"

namespace simulated_device {
namespace {

constexpr size_t kPinnedAlignment = 64;

struct PinnedRanges {
  std::mutex mutex;
  std::map<const char*, size_t> ranges;  // by first address
  PinnedUse use;
};

PinnedRanges& pinned() {
  static PinnedRanges* const pinned = new PinnedRanges;
  return *pinned;
}

// Queued copies own their host memory, so nothing reads or writes it any more.
void free_pinned(void* data) {
  if (!data) return;
  {
    const std::lock_guard<std::mutex> lock(pinned().mutex);
    const auto range = pinned().ranges.find(static_cast<const char*>(data));
    std::memset(data, kPoison, range->second);
    pinned().use.now -= range->second;
    pinned().ranges.erase(range);
  }
  std::free(data);
}

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* data = nullptr;
    if (bytes > 0) {
      const bool is_allowed = bytes <= static_cast<uint64_t>(settings().pinned_bytes);
      TORCH_CHECK_WITH(OutOfMemoryError, is_allowed && posix_memalign(&data, kPinnedAlignment, bytes) == 0, "no ",
                       bytes, " bytes of pinned memory");
      std::memset(data, kPoison, bytes);
      const std::lock_guard<std::mutex> lock(pinned().mutex);
      pinned().ranges[static_cast<const char*>(data)] = bytes;
      PinnedUse& use = pinned().use;
      use.now += bytes;
      use.peak = std::max(use.peak, use.now);
    }
    return {data, data, &free_pinned, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

}  // namespace

c10::Allocator& pinned_allocator() {
  static PinnedAllocator* const allocator = new PinnedAllocator;
  return *allocator;
}

bool is_pinned(const void* address) {
  const std::lock_guard<std::mutex> lock(pinned().mutex);
  auto after = pinned().ranges.upper_bound(static_cast<const char*>(address));
  if (after == pinned().ranges.begin()) return false;
  const auto range = std::prev(after);
  return static_cast<const char*>(address) < range->first + range->second;
}

PinnedUse pinned_use() {
  const std::lock_guard<std::mutex> lock(pinned().mutex);
  return pinned().use;
}

void reset_peak_pinned() {
  const std::lock_guard<std::mutex> lock(pinned().mutex);
  pinned().use.peak = pinned().use.now;
}

}  // namespace simulated_device
