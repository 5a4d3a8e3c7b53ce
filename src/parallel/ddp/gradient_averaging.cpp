#include "parallel/ddp/gradient_averaging.hpp"

namespace accel::parallel {

CommHook::Finish GradientAveraging::start(const GradientBucket& bucket) {
  // Nothing can overlap with the last bucket: this thread does the work, which saves two wake-ups per step.
  const auto thread = bucket.is_last ? comm::RunsOn::kCaller : comm::RunsOn::kBackground;
  const auto mean = comm::Collective::all_reduce(bucket.memory, comm::ReduceOp::kMean);
  return [work = ranks_->start(mean, thread)] { work->synchronize(); };
}

}  // namespace accel::parallel
