// SPDX-License-Identifier: Apache-2.0
#include "data/batches/batch_sampler_shard.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace accel::data {

BatchSamplerShard::BatchSamplerShard(const Batching& batching, const Shard& shard)
    : num_items_(batching.num_items), first_(batching.first), rank_(shard.process_index), even_(shard.even_batches) {
  const int64_t ranks = shard.num_processes;
  require(ranks >= 1 && rank_ >= 0 && rank_ < ranks, Status::kInvalidArgument, "process ", rank_, " of ", ranks,
          " has no share of the batches; expected an index from 0 to one less "
          "than the number of processes");
  require(first_ >= 0 && first_ <= num_items_, Status::kInvalidArgument, first_,
          " items were handed out, and the epoch has ", num_items_,
          "; expected a state of a loader over the same data");
  const int64_t batch_size = batching.batch_size.value_or(1);
  require(batch_size >= 1, Status::kInvalidArgument, "batch_size is ", batch_size, "; expected at least 1");
  if (shard.split_batches) {
    require(batching.batch_size.has_value(), Status::kInvalidArgument,
            "split_batches needs a batch size, and the batches have none; turn "
            "it off");
    require(batch_size % ranks == 0, Status::kInvalidArgument, "batch_size is ", batch_size,
            "; with split_batches expected a multiple of the ", ranks, " processes");
  }

  rows_ = shard.split_batches ? batch_size / ranks : batch_size;
  stride_ = rows_ * ranks;
  const int64_t items = num_items_ - first_;
  const int64_t whole_steps = items / stride_;
  const int64_t rest = items % stride_;
  const int64_t rest_batches = (rest + batch_size - 1) / batch_size;
  const bool partial = rest > 0 && !batching.drop_last;
  const bool share = even_ || rest > rows_ * rank_;
  count_ = whole_steps + (partial && share ? 1 : 0);
  length_ = whole_steps + (partial && (even_ || shard.split_batches || rank_ < rest_batches) ? 1 : 0);
}

BatchSamplerShard::Positions BatchSamplerShard::batch_of(int64_t rank, int64_t index) const {
  const int64_t begin = first_ + index * stride_ + rank * rows_;
  return {begin, even_ ? rows_ : std::clamp<int64_t>(num_items_ - begin, 0, rows_)};
}

int64_t BatchSamplerShard::valid(const Positions& positions) const {
  return std::clamp<int64_t>(num_items_ - positions.begin, 0, positions.size);
}

int64_t BatchSamplerShard::end_of(int64_t index) const { return std::min(num_items_, first_ + (index + 1) * stride_); }

}  // namespace accel::data
