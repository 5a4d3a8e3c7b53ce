// SPDX-License-Identifier: Apache-2.0
// Interleaves iterable datasets, drawn at random by weight. @accelerate datasets.interleave_datasets
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "data/iterable_dataset.hpp"

namespace accel::data {

// Each item comes from a source that is drawn by weight. The draws follow from seed, epoch and shard alone, so that the
// order is the same in every run and on every rank that reads the same shard.
class InterleavedDatasets final : public IterableDataset {
 public:
  enum class End : uint8_t {
    kFirst,  // when a source is drawn that has ended
    kAll,    // when all have; one that ended is drawn no more
  };
  InterleavedDatasets(std::vector<std::shared_ptr<const IterableDataset>> sources, std::vector<double> weights,
                      int64_t seed, End end);
  // Known for kAll over sources whose lengths are known.
  std::optional<int64_t> length() const override;
  // There are as many shards as the source with the fewest has.
  int64_t num_shards() const override;
  std::unique_ptr<DatasetIterator> read(int64_t epoch, int64_t shard, int64_t num_readers) const override;
  bool calls_back() const override;

 private:
  std::vector<std::shared_ptr<const IterableDataset>> sources_;
  std::vector<double> weights_;
  int64_t seed_;
  End end_;
};

}  // namespace accel::data
