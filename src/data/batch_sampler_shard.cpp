#include "data/batch_sampler_shard.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace accel::data {

BatchSamplerShard::BatchSamplerShard(const Batching& batching, const Shard& shard)
    : num_items_(batching.num_items), even_(shard.even_batches) {
  const int64_t ranks = shard.num_processes;
  const int64_t rank = shard.process_index;
  require(ranks >= 1 && rank >= 0 && rank < ranks, Status::kInvalidArgument, "process ", rank, " of ", ranks,
          " has no share of the batches; expected an index from 0 to one less "
          "than the number of processes");
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
  offset_ = rows_ * rank;
  const int64_t whole_steps = num_items_ / stride_;
  const int64_t rest = num_items_ % stride_;
  const int64_t rest_batches = (rest + batch_size - 1) / batch_size;
  const bool partial = rest > 0 && !batching.drop_last;
  const bool share = even_ || rest > offset_;
  count_ = whole_steps + (partial && share ? 1 : 0);
  length_ = whole_steps + (partial && (even_ || shard.split_batches || rank < rest_batches) ? 1 : 0);
}

BatchSamplerShard::Positions BatchSamplerShard::batch(int64_t index) const {
  const int64_t begin = index * stride_ + offset_;
  return {begin, even_ ? rows_ : std::min(rows_, num_items_ - begin)};
}

}  // namespace accel::data
