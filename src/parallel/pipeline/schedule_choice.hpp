// SPDX-License-Identifier: Apache-2.0
// The choice of a pipeline schedule: the one that a program names, or the fastest of all by the costs of the stages.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "parallel/pipeline/pipeline_schedule.hpp"
#include "parallel/pipeline/schedule_simulator.hpp"

namespace accel::parallel {

struct ScheduleRequest {
  std::string name = "1f1b";  // or "gpipe", "interleaved", "zero_bubble", "zero_bubble_v", "auto"
  int ranks = 1;
  int micro_batches = 1;
  int stages_per_rank = 0;  // 0: 2 for "interleaved" and "zero_bubble_v", 1 for the others
  int max_in_flight = 0;    // micro-batches whose activations a rank may keep; 0: as the schedule
};

// The costs where the chain is cut into so many stages; no stages: it cannot be.
using CostsOfCut = std::function<PipelineCosts(int stages)>;

// Throws INVALID_ARGUMENT for an unknown name, sizes below 1, chunks that the schedule does not have, and where the
// schedule keeps more than `max_in_flight`. `costs` is asked for "auto" only.
PipelineSchedule choose_schedule(const ScheduleRequest& request, const CostsOfCut& costs);

}  // namespace accel::parallel
