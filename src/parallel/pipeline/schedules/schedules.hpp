// SPDX-License-Identifier: Apache-2.0
// The generators of pipeline schedules. Each is valid for any number of ranks and micro-batches, unless it says so;
// fewer micro-batches than ranks leave ranks idle.
#pragma once

#include "parallel/pipeline/pipeline_schedule.hpp"

namespace accel::parallel {

struct PipelineCosts;

// All forwards, then all backwards, in one order, so that sums of gradients have the bits of the next schedule (Huang
// et al., "GPipe", 2019). A rank keeps the activations of all micro-batches.
PipelineSchedule gpipe_schedule(int ranks, int micro_batches);

// A backward follows each forward as soon as it can, so a rank keeps the activations of at most as many micro-batches
// as there are ranks behind it and itself (Narayanan et al., "PipeDream", 2019), or of `max_in_flight` (0: no limit).
PipelineSchedule one_forward_one_backward_schedule(int ranks, int micro_batches, int max_in_flight = 0);

// 1F1B with several chunks a rank, in rounds of as many micro-batches as there are ranks: bubbles are shorter by
// the number of chunks, and more is sent (Narayanan et al., "Efficient Large-Scale Language Model Training", 2021).
// Throws INVALID_ARGUMENT where the micro-batches cannot be shared out to rounds equally.
bool can_interleave(int ranks, int micro_batches);
PipelineSchedule interleaved_schedule(int ranks, int micro_batches, int stages_per_rank);

// 1F1B whose backwards are cut in two, and gradients of weights fill the bubbles: ZB-H1 of Qi et al., "Zero Bubble
// Pipeline Parallelism", 2023. Keeps as much as 1F1B.
PipelineSchedule zero_bubble_schedule(int ranks, int micro_batches, int max_in_flight = 0);

// Two chunks a rank in a V: no bubbles if forwards and both halves of backwards take the same time: ZB-V of Qi et al.,
// "Pipeline Parallelism with Controllable Memory", 2024.
PipelineSchedule zero_bubble_v_schedule(int ranks, int micro_batches);

// Ranks do what is ready, gradients of inputs first, then forwards, then gradients of weights, as the costs say.
// `shape.stages_per_rank` is 1 for loops and 2 for a V. A rank keeps at most `max_in_flight` micro-batches (0: as many
// as there are ranks).
PipelineSchedule greedy_schedule(const PipelineShape& shape, const PipelineCosts& costs, int max_in_flight = 0);

// Forwards alone, for evaluation: all micro-batches of a rank's first chunk, then of the next one.
PipelineSchedule forward_schedule(const PipelineShape& shape);

}  // namespace accel::parallel
