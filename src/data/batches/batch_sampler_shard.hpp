// SPDX-License-Identifier: Apache-2.0
// One rank's share of a batch sampler's batches, by arithmetic on positions: any batch is known from its number, so
// resuming needs no replay. @accelerate BatchSamplerShard
#pragma once

#include <cstdint>
#include <optional>

namespace accel::data {

// How an order of items is cut into batches. Without a batch size each "item"
// is itself a whole batch.
struct Batching {
  int64_t num_items = 0;
  std::optional<int64_t> batch_size;
  bool drop_last = false;
  int64_t first = 0;  // items before it were handed out already, by however many ranks there were then
};

struct Shard {
  int64_t num_processes = 1;
  int64_t process_index = 0;
  bool split_batches = false;  // the batch size is that of all ranks together
  bool even_batches = false;   // ranks that would get fewer items in the last
                               // batches get items from the start again
};

class BatchSamplerShard {
 public:
  // Positions [begin, begin + size) of the order; those at or above num_items
  // count on from its start, and are repetitions.
  struct Positions {
    int64_t begin;
    int64_t size;
  };

  BatchSamplerShard(const Batching& batching, const Shard& shard);

  // The number of batches of batch().
  int64_t count() const { return count_; }
  // The length that Accelerate reports. It is one more than count() when split_batches leaves a rank nothing of an
  // uneven last batch.
  int64_t length() const { return length_; }
  Positions batch(int64_t index) const { return batch_of(rank_, index); }

  // The positions of another rank in the same step, which may be empty.
  Positions batch_of(int64_t rank, int64_t index) const;
  // How many of them are not repetitions.
  int64_t valid(const Positions& positions) const;
  // Where the positions that follow batch `index` of all ranks begin.
  int64_t end_of(int64_t index) const;
  int64_t num_processes() const { return stride_ / rows_; }
  // Items that all ranks together take at a time.
  int64_t stride() const { return stride_; }

 private:
  int64_t num_items_;
  int64_t first_;
  int64_t rank_;
  int64_t rows_;    // of a rank's full batch
  int64_t stride_;  // from one batch of a rank to the next
  bool even_;
  int64_t length_;
  int64_t count_;
};

}  // namespace accel::data
