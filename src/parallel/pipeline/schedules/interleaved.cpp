// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/error.hpp"
#include "parallel/pipeline/schedules/alternation.hpp"
#include "parallel/pipeline/schedules/schedules.hpp"

namespace accel::parallel {
namespace {

int rounds_of(int ranks, int micro_batches) { return std::max(1, micro_batches / ranks); }

// The number of micro-batches next to this one that can be shared out.
int nearest_shareable(int ranks, int micro_batches) {
  for (int distance = 1;; distance++)
    for (const int number : {micro_batches - distance, micro_batches + distance})
      if (number > 0 && can_interleave(ranks, number)) return number;
}

}  // namespace

bool can_interleave(int ranks, int micro_batches) { return micro_batches % rounds_of(ranks, micro_batches) == 0; }

PipelineSchedule interleaved_schedule(int ranks, int micro_batches, int stages_per_rank) {
  const int rounds = rounds_of(ranks, micro_batches);
  require(can_interleave(ranks, micro_batches), Status::kInvalidArgument, "micro_batches ", micro_batches,
          " cannot be shared to ", rounds, " equal rounds of ", ranks,
          " ranks, as the schedule \"interleaved\" needs; take ", nearest_shareable(ranks, micro_batches),
          ", or another schedule");
  const int in_round = micro_batches / rounds;
  PipelineSchedule schedule{{ranks, micro_batches, stages_per_rank}, {}};
  for (int rank = 0; rank < ranks; rank++) {
    PipelineActions forwards, backwards;
    for (int number = 0; number < micro_batches * stages_per_rank; number++) {
      const int round = number / (in_round * stages_per_rank), chunk = number / in_round % stages_per_rank;
      const int micro_batch = round * in_round + number % in_round;
      forwards.push_back({PipelineAction::Kind::kForward, schedule.shape.stage_of(rank, chunk), micro_batch});
      backwards.push_back(
          {PipelineAction::Kind::kBackward, schedule.shape.stage_of(rank, stages_per_rank - 1 - chunk), micro_batch});
    }
    const int warm_up = 2 * (ranks - 1 - rank) + (stages_per_rank - 1) * in_round;
    schedule.ranks.push_back(alternate(std::min(forwards.size(), static_cast<size_t>(warm_up)), forwards, backwards));
  }
  return schedule;
}

}  // namespace accel::parallel
