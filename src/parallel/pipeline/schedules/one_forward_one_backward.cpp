// SPDX-License-Identifier: Apache-2.0
#include "parallel/pipeline/schedules/alternation.hpp"
#include "parallel/pipeline/schedules/schedules.hpp"

namespace accel::parallel {

PipelineSchedule one_forward_one_backward_schedule(int ranks, int micro_batches, int max_in_flight) {
  PipelineSchedule schedule{{ranks, micro_batches}, {}};
  for (int rank = 0; rank < ranks; rank++)
    schedule.ranks.push_back(alternate(warm_up_of(rank, ranks, micro_batches, max_in_flight),
                                       each_micro_batch(PipelineAction::Kind::kForward, rank, micro_batches),
                                       each_micro_batch(PipelineAction::Kind::kBackward, rank, micro_batches)));
  return schedule;
}

}  // namespace accel::parallel
