// Blocks of memory that are used again. What the system hands out anew it clears page by page at the first touch, which
// costs as much as a pass over the block; a training step asks for the same sizes again and again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace accel::kernels {

struct BlockStatistics {
  size_t in_use = 0;       // bytes of blocks that are taken
  size_t most_in_use = 0;  // the largest that in_use has been
  size_t kept = 0;         // bytes of blocks that wait for the next
  uint64_t reused = 0;     // calls of take() that found a block waiting
  uint64_t mapped = 0;     // and that did not
};

// Any thread may give what another took.
class BlockCache {
 public:
  // Smaller blocks are better off with malloc, which keeps them by itself.
  static constexpr size_t kSmallest = size_t{64} << 10;

  explicit BlockCache(size_t most_kept) : most_kept_(most_kept) {}
  ~BlockCache();
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  // At least `bytes`, which are kSmallest or more, at the beginning of a page; null when the system has none.
  void* take(size_t bytes);
  // False when the block is none of this cache's.
  bool give(void* block);

  // Blocks beyond this go back to the system, those that have waited longest first.
  void set_most_kept(size_t bytes);
  // Returns all waiting blocks to the system.
  void trim() { release(0); }
  BlockStatistics statistics() const;
  // most_in_use begins again at what is in use.
  void reset_peak();

 private:
  struct Waiting {
    void* block;
    uint64_t since;
  };
  // Eight sizes for each power of two, so that at most an eighth of a block is unused.
  static constexpr size_t kClasses = 8 * 40;
  static size_t class_of(size_t bytes);
  static size_t class_size(size_t index);

  void* take_waiting(size_t index);
  void release(size_t most_kept);

  mutable std::mutex mutex_;
  std::array<std::vector<Waiting>, kClasses> waiting_;  // of each class, the latest last
  std::unordered_map<void*, size_t> classes_;           // of all blocks
  size_t most_kept_;
  uint64_t clock_ = 0;
  BlockStatistics statistics_;
};

}  // namespace accel::kernels
