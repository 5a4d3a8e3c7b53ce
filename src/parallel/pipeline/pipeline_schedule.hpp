// SPDX-License-Identifier: Apache-2.0
// Pipeline schedule: what each rank of a pipeline computes in a step, and in which order, as lists of actions. A
// schedule has no tensors: a generator makes it (schedules/), the simulator proves and times it, the ranks execute it.
//
// Note: the words. The model is a chain of stages, and the rows of a batch are cut into micro-batches. A forward of a
// micro-batch goes from the first stage to the last, its backward returns. A backward may be cut in two: the gradient
// of the stage's input, for which the stage before it waits, and the gradients of the weights, for which nobody waits.
// Ranks have one stage each, or several chunks of the chain that are not neighbours.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace accel::parallel {

struct PipelineAction {
  enum class Kind : uint8_t {
    kForward,
    kBackward,        // both halves
    kInputBackward,   // the gradient of the stage's input
    kWeightBackward,  // the gradients of its weights, behind the former
  };
  Kind kind;
  int stage;
  int micro_batch;
};
using PipelineActions = std::vector<PipelineAction>;

// How the chunks of the chain lie on the ranks.
enum class StageOrder : uint8_t {
  kLoop,  // stage s is on rank s % ranks
  kV,     // two chunks: the second half of the chain returns, so that the last stage is on the rank of the first
  // Each rank has one stage, which a batch passes in each round as another one of a loop: so a model generates.
  kRounds,
};

struct PipelineShape {
  int ranks = 1;
  int micro_batches = 1;
  int stages_per_rank = 1;
  StageOrder order = StageOrder::kLoop;

  int stages() const { return ranks * stages_per_rank; }
  int rank_of(int stage) const;
  // The stage that is the rank's chunk number `chunk`, in the order of the chain.
  int stage_of(int rank, int chunk) const;
};

// The most stages times micro-batches: messages between them have numbers.
constexpr int64_t kMostStageBatches = (int64_t{1} << 20) - 1;

struct PipelineSchedule {
  PipelineShape shape;
  std::vector<PipelineActions> ranks;  // by rank
};

// Throws INVALID_ARGUMENT for more than kMostStageBatches.
void require_numbered(int64_t stages, int64_t micro_batches);

// "F0 F1 B0": the number is that of the micro-batch. With several stages on a rank "F0.2": stage 0, micro-batch 2.
std::string text_of(const PipelineSchedule& schedule, int rank);
std::string text_of(const PipelineAction& action, const PipelineShape& shape);

}  // namespace accel::parallel
