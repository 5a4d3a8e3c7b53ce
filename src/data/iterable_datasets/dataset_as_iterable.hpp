// SPDX-License-Identifier: Apache-2.0
// Iterates over a map-style dataset. @accelerate datasets.Dataset.to_iterable_dataset
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "data/dataset.hpp"
#include "data/iterable_dataset.hpp"

namespace accel::data {

// In the order of their numbers, or with a seed in each epoch in another order, that of SeedableRandomSampler. Its
// shards are its items.
class DatasetAsIterable final : public IterableDataset {
 public:
  DatasetAsIterable(std::shared_ptr<const Dataset> dataset, std::optional<int64_t> seed);
  std::optional<int64_t> length() const override { return dataset_->length(); }
  int64_t num_shards() const override;
  std::unique_ptr<DatasetIterator> read(int64_t epoch, int64_t shard, int64_t num_readers) const override;
  bool calls_back() const override { return dataset_->calls_back(); }

 private:
  std::shared_ptr<const Dataset> dataset_;
  std::optional<int64_t> seed_;
};

}  // namespace accel::data
