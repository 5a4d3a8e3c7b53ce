// SPDX-License-Identifier: Apache-2.0
#include "parallel/pipeline/schedules/schedules.hpp"

namespace accel::parallel {

PipelineSchedule forward_schedule(const PipelineShape& shape) {
  PipelineSchedule schedule{shape, {}};
  for (int rank = 0; rank < shape.ranks; rank++) {
    PipelineActions& actions = schedule.ranks.emplace_back();
    for (int chunk = 0; chunk < shape.stages_per_rank; chunk++)
      for (int micro_batch = 0; micro_batch < shape.micro_batches; micro_batch++)
        actions.push_back({PipelineAction::Kind::kForward, shape.stage_of(rank, chunk), micro_batch});
  }
  return schedule;
}

}  // namespace accel::parallel
