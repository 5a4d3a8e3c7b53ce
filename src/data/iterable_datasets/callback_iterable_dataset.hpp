// SPDX-License-Identifier: Apache-2.0
// An iterable dataset of callbacks of the application.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "data/iterable_dataset.hpp"

namespace accel::data {

// An iterator is a number that `begin` chooses; each call gets it until `end`.
struct IterableDatasetFunctions {
  std::function<int64_t(int64_t epoch, int64_t shard, int64_t num_readers)> begin;
  std::function<std::optional<c10::IValue>(int64_t reader)> next;
  std::function<int64_t(int64_t reader, int64_t count)> skip;  // may be missing: items are then made to be left out
  std::function<void(int64_t reader)> end;                     // may be missing
};

class CallbackIterableDataset final : public IterableDataset {
 public:
  CallbackIterableDataset(IterableDatasetFunctions functions, std::optional<int64_t> length, int64_t num_shards);
  std::optional<int64_t> length() const override { return length_; }
  int64_t num_shards() const override { return num_shards_; }
  std::unique_ptr<DatasetIterator> read(int64_t epoch, int64_t shard, int64_t num_readers) const override;
  bool calls_back() const override { return true; }

 private:
  std::shared_ptr<const IterableDatasetFunctions> functions_;  // readers keep them alive
  std::optional<int64_t> length_;
  int64_t num_shards_;
};

}  // namespace accel::data
