// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "parallel/pipeline/schedules/alternation.hpp"
#include "parallel/pipeline/schedules/schedules.hpp"

namespace accel::parallel {

PipelineSchedule zero_bubble_schedule(int ranks, int micro_batches, int max_in_flight) {
  using Kind = PipelineAction::Kind;
  PipelineSchedule schedule{{ranks, micro_batches}, {}};
  for (int rank = 0; rank < ranks; rank++) {
    const size_t warm_up = warm_up_of(rank, ranks, micro_batches, max_in_flight);
    // A rank that starts later has its bubbles at the end, and puts as many gradients off until then.
    const int put_off = max_in_flight > 0 ? std::min(rank, max_in_flight - 1 - static_cast<int>(warm_up)) : rank;
    PipelineActions actions;
    int weights = 0;  // the next micro-batch whose gradients of weights are due
    for (const PipelineAction& action : alternate(warm_up, each_micro_batch(Kind::kForward, rank, micro_batches),
                                                  each_micro_batch(Kind::kInputBackward, rank, micro_batches))) {
      actions.push_back(action);
      if (action.kind == Kind::kInputBackward && action.micro_batch >= put_off)
        actions.push_back({Kind::kWeightBackward, rank, weights++});
    }
    while (weights < micro_batches) actions.push_back({Kind::kWeightBackward, rank, weights++});
    schedule.ranks.push_back(actions);
  }
  return schedule;
}

}  // namespace accel::parallel
