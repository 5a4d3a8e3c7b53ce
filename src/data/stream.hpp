// Items that come one after another. @accelerate torch.utils.data.IterableDataset
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <optional>

namespace accel::data {

class StreamReader {
 public:
  virtual ~StreamReader() = default;
  // Nothing at the end, and from then on.
  virtual std::optional<c10::IValue> next() = 0;
  // Leaves items out and says how many there were, fewer than `count` at the end only. Readers that need not make them
  // to do so override it.
  virtual int64_t skip(int64_t count) {
    int64_t skipped = 0;
    while (skipped < count && next().has_value()) ++skipped;
    return skipped;
  }
};

class Stream {
 public:
  virtual ~Stream() = default;
  // Unknown for most.
  virtual std::optional<int64_t> length() const { return std::nullopt; }
  // Parts that can be read without the others; a loader gives each rank its own where there are enough.
  virtual int64_t num_shards() const { return 1; }
  // All items of an epoch, or those of the shards `shard`, `shard` + `num_readers`, ... The same ones in the same order
  // each time, or else resuming is not exact. One thread reads a reader.
  virtual std::unique_ptr<StreamReader> read(int64_t epoch, int64_t shard, int64_t num_readers) const = 0;
  // As Dataset::calls_back().
  virtual bool calls_back() const { return false; }
};

}  // namespace accel::data
