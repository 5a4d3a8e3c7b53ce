// SPDX-License-Identifier: Apache-2.0
#include "parallel/pipeline/pipeline_schedule.hpp"

#include "base/error.hpp"

namespace accel::parallel {

int PipelineShape::rank_of(int stage) const {
  if (order != StageOrder::kV || stage < ranks) return stage % ranks;
  return 2 * ranks - 1 - stage;
}

int PipelineShape::stage_of(int rank, int chunk) const {
  if (order != StageOrder::kV || chunk == 0) return chunk * ranks + rank;
  return 2 * ranks - 1 - rank;
}

void require_numbered(int64_t stages, int64_t micro_batches) {
  require(stages * micro_batches <= kMostStageBatches, Status::kInvalidArgument, stages, " stages and ", micro_batches,
          " micro-batches have more messages than can be numbered; expected at most ", kMostStageBatches,
          " stages times micro-batches");
}

std::string text_of(const PipelineAction& action, const PipelineShape& shape) {
  const char kind = "FBIW"[static_cast<size_t>(action.kind)];
  if (shape.stages_per_rank == 1) return text(kind, action.micro_batch);
  return text(kind, action.stage, ".", action.micro_batch);
}

std::string text_of(const PipelineSchedule& schedule, int rank) {
  std::string line;
  for (const PipelineAction& action : schedule.ranks[static_cast<size_t>(rank)])
    line += (line.empty() ? "" : " ") + text_of(action, schedule.shape);
  return line;
}

}  // namespace accel::parallel
