// SPDX-License-Identifier: Apache-2.0
// Block pool: which blocks of a paged cache are in use, and by how many sequences.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace accel::nn {

class BlockPool {
 public:
  // The number of a block that nobody has; the lowest ones first.
  int64_t take() {
    if (free_.empty()) {
      owners_.push_back(1);
      return static_cast<int64_t>(owners_.size()) - 1;
    }
    std::pop_heap(free_.begin(), free_.end(), std::greater<>());
    const int64_t block = free_.back();
    free_.pop_back();
    owners(block) = 1;
    return block;
  }
  void share(int64_t block) { owners(block)++; }
  void release(int64_t block) {
    if (--owners(block) > 0) return;
    free_.push_back(block);
    std::push_heap(free_.begin(), free_.end(), std::greater<>());
  }
  bool is_shared(int64_t block) { return owners(block) > 1; }
  // Blocks that were ever in use at once.
  int64_t size() const { return static_cast<int64_t>(owners_.size()); }
  int64_t in_use() const { return size() - static_cast<int64_t>(free_.size()); }

 private:
  int32_t& owners(int64_t block) { return owners_[static_cast<size_t>(block)]; }

  std::vector<int32_t> owners_;
  std::vector<int64_t> free_;  // a heap
};

}  // namespace accel::nn
