// SPDX-License-Identifier: Apache-2.0
#include "parallel/pipeline/schedules/alternation.hpp"
#include "parallel/pipeline/schedules/schedules.hpp"

namespace accel::parallel {

PipelineSchedule gpipe_schedule(int ranks, int micro_batches) {
  PipelineSchedule schedule{{ranks, micro_batches}, {}};
  for (int rank = 0; rank < ranks; rank++)
    schedule.ranks.push_back(alternate(static_cast<size_t>(micro_batches),
                                       each_micro_batch(PipelineAction::Kind::kForward, rank, micro_batches),
                                       each_micro_batch(PipelineAction::Kind::kBackward, rank, micro_batches)));
  return schedule;
}

}  // namespace accel::parallel
