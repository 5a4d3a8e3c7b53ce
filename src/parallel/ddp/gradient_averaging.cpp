// SPDX-License-Identifier: Apache-2.0
#include "parallel/ddp/gradient_averaging.hpp"

#include <utility>

namespace accel::parallel {

namespace {

// Nothing can overlap with the last bucket: this thread does the work, which saves two wake-ups per step.
CommHook::Finish reduce_bucket(const GradientBucket& bucket, comm::Communicator& ranks, comm::ReduceOp reduction,
                               double scale = 1) {
  const auto thread = bucket.is_last ? comm::RunsOn::kCaller : comm::RunsOn::kBackground;
  const auto collective = comm::Collective::all_reduce(bucket.memory, reduction, scale);
  return [work = ranks.start(collective, thread)] { work->synchronize(); };
}

}  // namespace

CommHook::Finish GradientAveraging::start(const GradientBucket& bucket) {
  return reduce_bucket(bucket, *ranks_, comm::ReduceOp::kMean);
}

CommHook::Finish GradientSumming::start(const GradientBucket& bucket) {
  return reduce_bucket(bucket, *all_, comm::ReduceOp::kSum, scale_);
}

CommHook::Finish NestedGradientSumming::start(const GradientBucket& bucket) {
  if (replicas_ == nullptr) return reduce_bucket(bucket, *terms_, comm::ReduceOp::kSum);
  Finish averaged = reduce_bucket(bucket, *replicas_, comm::ReduceOp::kMean);
  return [averaged = std::move(averaged), memory = bucket.memory, terms = terms_] {
    averaged();
    terms->all_reduce(memory, comm::ReduceOp::kSum);
  };
}

}  // namespace accel::parallel
