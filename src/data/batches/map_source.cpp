// SPDX-License-Identifier: Apache-2.0
#include "data/batches/map_source.hpp"

#include <utility>

namespace accel::data {

MapSource::MapSource(std::shared_ptr<const Dataset> dataset, EpochBatches batches, const BatchSamplerShard& shard,
                     int64_t remainder, Collation collation)
    : dataset_(std::move(dataset)),
      batches_(std::move(batches)),
      units_(batches_.count()),
      shard_(shard),
      remainder_(remainder),
      collation_(std::move(collation)) {}

c10::IntArrayRef MapSource::unit(int64_t position) const {
  const auto* const indices = batches_.indices.const_data_ptr<int64_t>();
  const int64_t place = position % units_;
  if (batches_.offsets.empty()) return {indices + place, 1};
  return {indices + batches_.offsets[place],
          static_cast<size_t>(batches_.offsets[place + 1] - batches_.offsets[place])};
}

int64_t MapSource::rows_of(const BatchSamplerShard::Positions& positions) const {
  if (batches_.offsets.empty()) return positions.size;
  int64_t rows = 0;
  for (int64_t i = 0; i < positions.size; ++i) rows += static_cast<int64_t>(unit(positions.begin + i).size());
  return rows;
}

c10::IValue MapSource::collect(const BatchSamplerShard::Positions& positions) const {
  if (positions.begin + positions.size <= units_ && (batches_.offsets.empty() || positions.size == 1))
    return dataset_->batch({unit(positions.begin).data(), static_cast<size_t>(rows_of(positions))}, collation_);
  std::vector<int64_t> wrapped;
  for (int64_t i = 0; i < positions.size; ++i) {
    const c10::IntArrayRef indices = unit(positions.begin + i);
    wrapped.insert(wrapped.end(), indices.begin(), indices.end());
  }
  return dataset_->batch(wrapped, collation_);
}

state::LoaderProgress MapSource::progress(int64_t index, int64_t rows) const {
  state::LoaderProgress progress;
  progress.end_of_dataloader = index + 1 == shard_.count();
  progress.remainder = remainder_;
  progress.rows = rows;
  const bool whole = shard_.end_of(index) - shard_.batch_of(0, index).begin == shard_.stride();
  if (whole && batches_.offsets.empty()) return progress;
  for (int64_t rank = 0; rank < shard_.num_processes(); ++rank) {
    const auto positions = shard_.batch_of(rank, index);
    const int64_t of_rank = rows_of(positions);
    progress.ranks.push_back({positions.size == 0 ? -1 : of_rank, rows_of({positions.begin, shard_.valid(positions)})});
  }
  return progress;
}

std::optional<Batch> MapSource::read(int64_t index) {
  if (index >= shard_.count()) return std::nullopt;
  const auto positions = shard_.batch(index);
  Batch batch;
  batch.value = collect(positions);
  batch.progress = progress(index, rows_of(positions));
  const int64_t end = shard_.end_of(index);
  batch.end.samples = batches_.offsets.empty() ? end : batches_.offsets[end];
  return batch;
}

}  // namespace accel::data
