// SPDX-License-Identifier: Apache-2.0
// Batches of a dataset with random access: each is known from its number alone.
#pragma once

#include <memory>
#include <vector>

#include "data/batches/batch_sampler.hpp"
#include "data/batches/batch_sampler_shard.hpp"
#include "data/batches/batch_source.hpp"
#include "data/dataset.hpp"

namespace accel::data {

class MapSource final : public BatchSource {
 public:
  MapSource(std::shared_ptr<const Dataset> dataset, EpochBatches batches, const BatchSamplerShard& shard,
            int64_t remainder, Collation collation);
  std::optional<Batch> read(int64_t index) override;
  bool is_random_access() const override { return true; }

 private:
  int64_t rows_of(const BatchSamplerShard::Positions& positions) const;
  c10::IntArrayRef unit(int64_t position) const;
  c10::IValue collect(const BatchSamplerShard::Positions& positions) const;
  state::LoaderProgress progress(int64_t index, int64_t rows) const;

  std::shared_ptr<const Dataset> dataset_;
  EpochBatches batches_;
  int64_t units_;  // what the shard's positions count: items, or whole batches
  BatchSamplerShard shard_;
  int64_t remainder_;
  Collation collation_;
};

}  // namespace accel::data
