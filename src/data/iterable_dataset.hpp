// SPDX-License-Identifier: Apache-2.0
// Datasets that can only be iterated over, without access by index. @accelerate torch.utils.data.IterableDataset
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <optional>

namespace accel::data {

class DatasetIterator {
 public:
  virtual ~DatasetIterator() = default;
  // The next item; nothing at the end, and from then on.
  virtual std::optional<c10::IValue> next() = 0;
  // Leaves out the next items and returns their number, which is below `count` only at the end. Iterators that can do
  // this without making the items override it.
  virtual int64_t skip(int64_t count) {
    int64_t skipped = 0;
    while (skipped < count && next().has_value()) ++skipped;
    return skipped;
  }
};

class IterableDataset {
 public:
  virtual ~IterableDataset() = default;
  // The number of items of an epoch; nothing where it is unknown, as for most.
  virtual std::optional<int64_t> length() const { return std::nullopt; }
  // Parts that can be read independently; a prepared loader assigns each rank its own where there are enough.
  virtual int64_t num_shards() const { return 1; }
  // Iterates over all items of an epoch, or over those of the shards `shard`, `shard` + `num_readers`, ... Items and
  // order must be the same each time, otherwise resuming is not exact. An iterator is used by one thread at a time.
  virtual std::unique_ptr<DatasetIterator> read(int64_t epoch, int64_t shard, int64_t num_readers) const = 0;
  // See Dataset::calls_back().
  virtual bool calls_back() const { return false; }
};

}  // namespace accel::data
