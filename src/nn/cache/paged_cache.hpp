// SPDX-License-Identifier: Apache-2.0
// Paged cache: the keys and values of many sequences in blocks of a fixed length (Kwon et al., "Efficient Memory
// Management for Large Language Model Serving with PagedAttention", 2023). Sequences may share blocks; one that writes
// into a shared block gets a copy first. Layers with a window keep no blocks before it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "nn/cache/block_pool.hpp"
#include "nn/cache/paged_call.hpp"

namespace accel::nn {

class CachedSequence;
class PagedLayer;

class PagedCache {
 public:
  explicit PagedCache(const std::vector<int64_t>& windows);  // of each layer; 0: none
  ~PagedCache();
  PagedCache(const PagedCache&) = delete;
  PagedCache& operator=(const PagedCache&) = delete;

  size_t num_layers() const { return layers_.size(); }

  // New positions of a sequence in a call.
  struct Row {
    const CachedSequence* sequence = nullptr;  // already extended by them
    int64_t positions = 0;
    int64_t wanted = 0;  // the last of them whose scores are needed
  };
  // past_key_values of a call of the model with the tokens of these rows behind each other, [1, tokens]. The next one
  // replaces it.
  c10::IValue begin_call(const std::vector<Row>& rows, c10::Device device);

  // Keys and values of a sequence's positions from `begin` on, [2, key heads, positions, size].
  at::Tensor read(size_t layer, const CachedSequence& sequence, int64_t begin) const;
  // Writes such tensors of the positions that a sequence was extended by, from `begin` on.
  void write(size_t layer, const CachedSequence& sequence, int64_t begin, const at::Tensor& keys_and_values);

 private:
  friend class CachedSequence;

  // Layers with the same window, whose blocks have the same numbers.
  struct Group {
    int64_t window = 0;
    BlockPool pool;
  };

  void copy_block(size_t group, int64_t from, int64_t to);

  std::deque<Group> groups_;  // layers point to them
  std::vector<c10::intrusive_ptr<PagedLayer>> layers_;
  PagedCall call_;
};

// The positions of a sequence in a cache.
class CachedSequence {
 public:
  explicit CachedSequence(std::shared_ptr<PagedCache> cache);
  ~CachedSequence();
  CachedSequence(const CachedSequence&) = delete;
  CachedSequence& operator=(const CachedSequence&) = delete;

  int64_t length() const { return length_; }
  static constexpr int64_t kMaxRollback = 64;  // positions

  // Makes room for so many positions behind the last one. What no window sees any more, even after a truncate(), is
  // given up.
  void extend(int64_t positions);
  // Forgets the positions from `length` on: those of the last extend(), or kMaxRollback at most.
  void truncate(int64_t length);
  // A sequence with the first positions of this one, in the same blocks. Null where windows have given some of them up.
  std::unique_ptr<CachedSequence> fork(int64_t length) const;

 private:
  friend class PagedCache;
  static constexpr int64_t kGivenUp = -1;

  // The first position that the position behind `length` others sees.
  static int64_t first_seen(int64_t window, int64_t length);

  std::shared_ptr<PagedCache> cache_;
  std::vector<std::vector<int64_t>> blocks_;  // by group
  int64_t length_ = 0;
};

}  // namespace accel::nn
