// SPDX-License-Identifier: Apache-2.0
#include "kernels/memory/caching_allocator.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace accel::kernels {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSteps = 8;  // size classes for each power of two

// Under AddressSanitizer an access to a free block is reported, as for freed memory.
void poison([[maybe_unused]] void* block, [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  ASAN_POISON_MEMORY_REGION(block, bytes);
#endif
}

void unpoison([[maybe_unused]] void* block, [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(block, bytes);
#endif
}

void* map_memory(size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

// Large blocks are aligned to a huge page and ask for huge pages: fewer page faults and TLB misses.
void* map_block(size_t bytes) {
  if (bytes < kHugePage) return map_memory(bytes);
  char* const memory = static_cast<char*>(map_memory(bytes + kHugePage));
  if (memory == nullptr) return map_memory(bytes);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(memory) % kHugePage) % kHugePage;
  if (before > 0) munmap(memory, before);
  char* const block = memory + before;
  if (before < kHugePage) munmap(block + bytes, kHugePage - before);
  madvise(block, bytes, MADV_HUGEPAGE);  // only a hint: small pages work too
  return block;
}

}  // namespace

CachingAllocator::~CachingAllocator() { release(0); }

size_t CachingAllocator::class_of(size_t bytes) {
  const size_t last = std::max(bytes, kSmallest) - 1;
  const size_t power = static_cast<size_t>(63 - __builtin_clzll(last / kSmallest * 2 + 1));  // 0 for kSmallest itself
  if (power == 0) return 0;
  const size_t base = kSmallest << (power - 1);
  return (power - 1) * kSteps + (last - base) / (base / kSteps) + 1;
}

size_t CachingAllocator::class_size(size_t index) {
  if (index == 0) return kSmallest;
  const size_t base = kSmallest << ((index - 1) / kSteps);
  return base + ((index - 1) % kSteps + 1) * (base / kSteps);
}

void* CachingAllocator::take_cached(size_t index) {
  std::vector<CachedBlock>& cached = cached_[index];
  if (cached.empty()) return nullptr;
  void* const block = cached.back().block;
  cached.pop_back();
  statistics_.cached -= class_size(index);
  ++statistics_.reused;
  return block;
}

void* CachingAllocator::allocate(size_t bytes) {
  if (bytes > (kSmallest << (kClasses / kSteps - 1))) return nullptr;
  const size_t index = class_of(bytes);
  const size_t size = class_size(index);
  const std::lock_guard lock(mutex_);
  void* block = take_cached(index);
  if (block == nullptr) {
    block = map_block(size);
    if (block == nullptr) return nullptr;
    ++statistics_.mapped;
    try {
      classes_.emplace(block, index);
    } catch (...) {
      munmap(block, size);
      throw;
    }
  }
  unpoison(block, size);
  statistics_.in_use += size;
  statistics_.peak_in_use = std::max(statistics_.peak_in_use, statistics_.in_use);
  return block;
}

bool CachingAllocator::free(void* block) {
  std::unique_lock lock(mutex_);
  const auto found = classes_.find(block);
  if (found == classes_.end()) return false;
  const size_t index = found->second;
  const size_t size = class_size(index);
  statistics_.in_use -= size;
  try {
    cached_[index].push_back({block, clock_++});
  } catch (const std::bad_alloc&) {  // destructors free, so it must not fail
    classes_.erase(found);
    munmap(block, size);
    return true;
  }
  statistics_.cached += size;
  poison(block, size);
  const bool is_over = statistics_.cached > max_cached_;
  const size_t max_cached = max_cached_;
  lock.unlock();
  if (is_over) release(max_cached);
  return true;
}

void CachingAllocator::set_max_cached(size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    max_cached_ = bytes;
  }
  release(bytes);
}

void CachingAllocator::release(size_t max_cached) {
  const std::lock_guard lock(mutex_);
  while (statistics_.cached > max_cached) {
    // The first of each class has been unused longest.
    const auto oldest = std::min_element(cached_.begin(), cached_.end(), [](const auto& a, const auto& b) {
      return !a.empty() && (b.empty() || a.front().freed_at < b.front().freed_at);
    });
    void* const block = oldest->front().block;
    const size_t size = class_size(static_cast<size_t>(oldest - cached_.begin()));
    oldest->erase(oldest->begin());
    statistics_.cached -= size;
    classes_.erase(block);
    unpoison(block, size);
    munmap(block, size);
  }
}

AllocatorStatistics CachingAllocator::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

void CachingAllocator::reset_peak() {
  const std::lock_guard lock(mutex_);
  statistics_.peak_in_use = statistics_.in_use;
}

}  // namespace accel::kernels
