// SPDX-License-Identifier: Apache-2.0
// Caching allocator: keeps freed blocks for later allocations of about the same size. The system clears each page of
// new memory at its first access, which costs as much as a pass over the block, and training steps allocate the same
// sizes again and again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace accel::kernels {

struct AllocatorStatistics {
  size_t in_use = 0;       // bytes of allocated blocks
  size_t peak_in_use = 0;  // the largest value of in_use
  size_t cached = 0;       // bytes of free blocks
  uint64_t reused = 0;     // calls of allocate() that were served from the cache
  uint64_t mapped = 0;     // calls that had to ask the system
};

// Thread-safe; any thread may free a block.
class CachingAllocator {
 public:
  // Smaller blocks are left to malloc, which caches them itself.
  static constexpr size_t kSmallest = size_t{64} << 10;

  explicit CachingAllocator(size_t max_cached) : max_cached_(max_cached) {}
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // A block of at least `bytes` (kSmallest or more), aligned to a page; null if the system has no memory.
  void* allocate(size_t bytes);
  // False if the block is not from this allocator.
  bool free(void* block);

  // Free blocks beyond this many bytes are returned to the system, the longest unused first.
  void set_max_cached(size_t bytes);
  // Returns all free blocks to the system.
  void empty_cache() { release(0); }
  AllocatorStatistics statistics() const;
  // Sets peak_in_use to in_use.
  void reset_peak();

 private:
  struct CachedBlock {
    void* block;
    uint64_t freed_at;
  };
  // Eight size classes for each power of two, so that at most an eighth of a block is unused.
  static constexpr size_t kClasses = 8 * 40;
  static size_t class_of(size_t bytes);
  static size_t class_size(size_t index);

  void* take_cached(size_t index);
  void release(size_t max_cached);

  mutable std::mutex mutex_;
  std::array<std::vector<CachedBlock>, kClasses> cached_;  // of each size class, the latest freed last
  std::unordered_map<void*, size_t> classes_;              // of all blocks
  size_t max_cached_;
  uint64_t clock_ = 0;
  AllocatorStatistics statistics_;
};

}  // namespace accel::kernels
