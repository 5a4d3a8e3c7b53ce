// SPDX-License-Identifier: Apache-2.0
// Alternation: a rank's forwards and backwards in turn, the form of most schedules.
#pragma once

#include "parallel/pipeline/pipeline_schedule.hpp"

namespace accel::parallel {

// `warm_up` forwards, then a forward and a backward in turn while forwards are left, then the other backwards.
PipelineActions alternate(size_t warm_up, const PipelineActions& forwards, const PipelineActions& backwards);

// The forwards and the backwards of a stage, and how many forwards come first where ranks have one stage each.
PipelineActions each_micro_batch(PipelineAction::Kind kind, int stage, int micro_batches);
size_t warm_up_of(int rank, int ranks, int micro_batches, int max_in_flight);

}  // namespace accel::parallel
