// SPDX-License-Identifier: Apache-2.0
// Schedule simulator: proves that a pipeline schedule ends, and says when, and what it keeps, without a rank or a
// tensor. Messages are sent without waiting and received ahead of their use, so an action begins when its rank is
// free and what it needs has arrived.
#pragma once

#include <vector>

#include "parallel/pipeline/pipeline_schedule.hpp"

namespace accel::parallel {

// Seconds for one micro-batch.
struct StageCost {
  double forward = 1, input_backward = 1, weight_backward = 1;
  double apart = 0;  // in addition where the halves of a backward are actions of their own

  double of(PipelineAction::Kind kind) const;
};

struct PipelineCosts {
  std::vector<StageCost> stages;
  double message = 0;  // from one rank to another, beside the computation of both
  // A whole backward sends the gradient of its input before it computes those of the weights.
  bool sends_early = false;
};

struct SimulatedStep {
  struct Timed {
    PipelineAction action;
    double begin, end;
  };
  struct Rank {
    std::vector<Timed> actions;
    double busy = 0;  // seconds
    // The most micro-batches whose activations the rank keeps at a time: from a forward to the end of the backward,
    // with both halves. One chunk of a micro-batch is as much of it as the rank has chunks.
    double peak_in_flight = 0;
  };

  double seconds = 0;  // from the first action to the end of the last
  std::vector<Rank> ranks;

  double bubble(int rank) const { return seconds - ranks[static_cast<size_t>(rank)].busy; }
  double peak_in_flight() const;  // of all ranks
};

// Throws INTERNAL, with the rank and the action, if a micro-batch is not computed once by each stage, forward before
// backward, or if the ranks wait for each other.
SimulatedStep simulate(const PipelineSchedule& schedule, const PipelineCosts& costs);

// The parts of a simulation, for generators that decide by time.
class StageTimes {
 public:
  StageTimes(const PipelineShape& shape, const PipelineCosts& costs);

  bool is_done(PipelineAction::Kind kind, int stage, int micro_batch) const;
  // When what the action needs has arrived; negative: not all of it has been computed.
  double ready_at(const PipelineAction& action) const;
  void set_end(const PipelineAction& action, double end);

 private:
  enum Result : size_t { kOutput, kInputGradient, kWeightGradients, kResults };
  static constexpr double kNever = -1;

  double& end_of(Result result, int stage, int micro_batch);
  double end_of(Result result, int stage, int micro_batch) const;
  double arrival(Result result, int from, int to, int micro_batch) const;

  const PipelineShape shape_;
  const double message_;
  std::vector<double> behind_sends_;  // seconds that a whole backward goes on behind its send, by stage
  std::vector<double> ends_;          // by result, stage and micro-batch
};

}  // namespace accel::parallel
