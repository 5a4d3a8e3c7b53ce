// SPDX-License-Identifier: Apache-2.0
#include "data/samplers/distributed_sampler.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randperm.h>

#include "base/error.hpp"

namespace accel::data {

DistributedSampler::DistributedSampler(int64_t items, int64_t num_replicas, int64_t rank, std::optional<int64_t> seed,
                                       bool drop_last)
    : items_(items), num_replicas_(num_replicas), rank_(rank), seed_(seed) {
  require(items >= 0, Status::kInvalidArgument, "sampler length is ", items, "; expected at least 0");
  require(num_replicas >= 1, Status::kInvalidArgument, "num_replicas is ", num_replicas, "; expected at least 1");
  require(rank >= 0 && rank < num_replicas, Status::kInvalidArgument, "rank is ", rank, "; expected 0 to ",
          num_replicas - 1);
  length_ = drop_last ? items / num_replicas : (items + num_replicas - 1) / num_replicas;
}

at::Tensor DistributedSampler::indices(int64_t epoch) const {
  at::Tensor places = at::arange(length_, at::kLong).mul_(num_replicas_).add_(rank_);
  if (items_ > 0) places.remainder_(items_);
  return seed_ ? at::randperm(items_, epoch_generator(*seed_, epoch), at::kLong).index_select(0, places) : places;
}

}  // namespace accel::data
