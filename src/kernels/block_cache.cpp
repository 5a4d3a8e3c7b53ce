#include "kernels/block_cache.hpp"

#include <sys/mman.h>

#include <algorithm>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace accel::kernels {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSteps = 8;  // classes of each power of two

// Under AddressSanitizer a waiting block is out of bounds, as freed memory is.
void forbid([[maybe_unused]] void* block, [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  ASAN_POISON_MEMORY_REGION(block, bytes);
#endif
}

void allow([[maybe_unused]] void* block, [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(block, bytes);
#endif
}

void* map(size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

// Large blocks begin at a huge page and ask for such pages: fewer faults, and fewer misses of the address cache.
void* map_block(size_t bytes) {
  if (bytes < kHugePage) return map(bytes);
  char* const memory = static_cast<char*>(map(bytes + kHugePage));
  if (memory == nullptr) return map(bytes);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(memory) % kHugePage) % kHugePage;
  if (before > 0) munmap(memory, before);
  char* const block = memory + before;
  if (before < kHugePage) munmap(block + bytes, kHugePage - before);
  madvise(block, bytes, MADV_HUGEPAGE);  // a wish: where there are none, small pages do
  return block;
}

}  // namespace

BlockCache::~BlockCache() { release(0); }

size_t BlockCache::class_of(size_t bytes) {
  const size_t last = std::max(bytes, kSmallest) - 1;
  const size_t power = static_cast<size_t>(63 - __builtin_clzll(last / kSmallest * 2 + 1));  // 0 for kSmallest itself
  if (power == 0) return 0;
  const size_t base = kSmallest << (power - 1);
  return (power - 1) * kSteps + (last - base) / (base / kSteps) + 1;
}

size_t BlockCache::class_size(size_t index) {
  if (index == 0) return kSmallest;
  const size_t base = kSmallest << ((index - 1) / kSteps);
  return base + ((index - 1) % kSteps + 1) * (base / kSteps);
}

void* BlockCache::take_waiting(size_t index) {
  std::vector<Waiting>& waiting = waiting_[index];
  if (waiting.empty()) return nullptr;
  void* const block = waiting.back().block;
  waiting.pop_back();
  statistics_.kept -= class_size(index);
  ++statistics_.reused;
  return block;
}

void* BlockCache::take(size_t bytes) {
  if (bytes > (kSmallest << (kClasses / kSteps - 1))) return nullptr;
  const size_t index = class_of(bytes);
  const size_t size = class_size(index);
  const std::lock_guard lock(mutex_);
  void* block = take_waiting(index);
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
  allow(block, size);
  statistics_.in_use += size;
  statistics_.most_in_use = std::max(statistics_.most_in_use, statistics_.in_use);
  return block;
}

bool BlockCache::give(void* block) {
  std::unique_lock lock(mutex_);
  const auto found = classes_.find(block);
  if (found == classes_.end()) return false;
  const size_t index = found->second;
  const size_t size = class_size(index);
  statistics_.in_use -= size;
  statistics_.kept += size;
  forbid(block, size);
  waiting_[index].push_back({block, clock_++});
  const bool is_over = statistics_.kept > most_kept_;
  const size_t most_kept = most_kept_;
  lock.unlock();
  if (is_over) release(most_kept);
  return true;
}

void BlockCache::set_most_kept(size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    most_kept_ = bytes;
  }
  release(bytes);
}

void BlockCache::release(size_t most_kept) {
  const std::lock_guard lock(mutex_);
  while (statistics_.kept > most_kept) {
    // The first of each class has waited longest of it.
    const auto oldest = std::min_element(waiting_.begin(), waiting_.end(), [](const auto& a, const auto& b) {
      return !a.empty() && (b.empty() || a.front().since < b.front().since);
    });
    void* const block = oldest->front().block;
    const size_t size = class_size(static_cast<size_t>(oldest - waiting_.begin()));
    oldest->erase(oldest->begin());
    statistics_.kept -= size;
    classes_.erase(block);
    allow(block, size);
    munmap(block, size);
  }
}

BlockStatistics BlockCache::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

void BlockCache::reset_peak() {
  const std::lock_guard lock(mutex_);
  statistics_.most_in_use = statistics_.in_use;
}

}  // namespace accel::kernels
