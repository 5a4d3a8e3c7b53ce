// SPDX-License-Identifier: Apache-2.0
#include "parallel/pipeline/schedule_simulator.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace accel::parallel {
namespace {

using Kind = PipelineAction::Kind;

// The number of chunks of micro-batches that a rank keeps after the action.
int kept_chunks(int kept, Kind kind) {
  if (kind == Kind::kForward) return kept + 1;
  return kind == Kind::kInputBackward ? kept : kept - 1;
}

}  // namespace

double StageCost::of(Kind kind) const {
  switch (kind) {
    case Kind::kForward:
      return forward;
    case Kind::kBackward:
      return input_backward + weight_backward;
    case Kind::kInputBackward:
      return input_backward;
    case Kind::kWeightBackward:
      return weight_backward + apart;
  }
  return 0;
}

double SimulatedStep::peak_in_flight() const {
  double peak = 0;
  for (const Rank& rank : ranks) peak = std::max(peak, rank.peak_in_flight);
  return peak;
}

StageTimes::StageTimes(const PipelineShape& shape, const PipelineCosts& costs)
    : shape_(shape),
      message_(costs.message),
      ends_(kResults * static_cast<size_t>(shape.stages()) * static_cast<size_t>(shape.micro_batches), kNever) {
  for (const StageCost& cost : costs.stages) behind_sends_.push_back(costs.sends_early ? cost.weight_backward : 0);
}

double& StageTimes::end_of(Result result, int stage, int micro_batch) {
  return ends_[(result * static_cast<size_t>(shape_.stages()) + static_cast<size_t>(stage)) *
                   static_cast<size_t>(shape_.micro_batches) +
               static_cast<size_t>(micro_batch)];
}

double StageTimes::end_of(Result result, int stage, int micro_batch) const {
  return const_cast<StageTimes*>(this)->end_of(result, stage, micro_batch);
}

bool StageTimes::is_done(Kind kind, int stage, int micro_batch) const {
  const auto result = kind == Kind::kForward         ? kOutput
                      : kind == Kind::kInputBackward ? kInputGradient
                                                     : kWeightGradients;
  return end_of(result, stage, micro_batch) != kNever;
}

double StageTimes::arrival(Result result, int from, int to, int micro_batch) const {
  const double end = end_of(result, from, micro_batch);
  return end == kNever || shape_.rank_of(from) == shape_.rank_of(to) ? end : end + message_;
}

double StageTimes::ready_at(const PipelineAction& action) const {
  const auto [kind, stage, micro_batch] = action;
  if (kind == Kind::kForward) return stage == 0 ? 0 : arrival(kOutput, stage - 1, stage, micro_batch);
  if (kind == Kind::kWeightBackward) return end_of(kInputGradient, stage, micro_batch);
  const double output = end_of(kOutput, stage, micro_batch);
  if (output == kNever || stage == shape_.stages() - 1) return output;
  const double gradient = arrival(kInputGradient, stage + 1, stage, micro_batch);
  return gradient == kNever ? kNever : std::max(output, gradient);
}

void StageTimes::set_end(const PipelineAction& action, double end) {
  const auto [kind, stage, micro_batch] = action;
  if (kind == Kind::kForward) end_of(kOutput, stage, micro_batch) = end;
  if (kind == Kind::kInputBackward) end_of(kInputGradient, stage, micro_batch) = end;
  if (kind == Kind::kBackward)
    end_of(kInputGradient, stage, micro_batch) = end - behind_sends_[static_cast<size_t>(stage)];
  if (kind == Kind::kBackward || kind == Kind::kWeightBackward) end_of(kWeightGradients, stage, micro_batch) = end;
}

SimulatedStep simulate(const PipelineSchedule& schedule, const PipelineCosts& costs) {
  const PipelineShape& shape = schedule.shape;
  const auto n_ranks = static_cast<size_t>(shape.ranks);
  StageTimes times(shape, costs);
  SimulatedStep step;
  step.ranks.resize(n_ranks);
  std::vector<int> kept(n_ranks);
  const auto compute = [&](size_t rank, const PipelineAction& action, double ready) {
    SimulatedStep::Rank& simulated = step.ranks[rank];
    const double begin = std::max(ready, simulated.actions.empty() ? 0 : simulated.actions.back().end);
    const double seconds = costs.stages[static_cast<size_t>(action.stage)].of(action.kind);
    times.set_end(action, begin + seconds);
    simulated.actions.push_back({action, begin, begin + seconds});
    simulated.busy += seconds;
    kept[rank] = kept_chunks(kept[rank], action.kind);
    simulated.peak_in_flight =
        std::max(simulated.peak_in_flight, static_cast<double>(kept[rank]) / shape.stages_per_rank);
    step.seconds = std::max(step.seconds, begin + seconds);
  };
  const auto check = [&](int rank, const PipelineAction& action) {
    const std::string name = text_of(action, shape);
    require(shape.rank_of(action.stage) == rank, Status::kInternal, "the pipeline schedule has ", name, " on rank ",
            rank, ", but the stage is on rank ", shape.rank_of(action.stage));
    const Kind last = action.kind == Kind::kBackward ? Kind::kInputBackward : action.kind;
    require(!times.is_done(last, action.stage, action.micro_batch), Status::kInternal, "the pipeline schedule has ",
            name, " twice on rank ", rank);
  };

  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (size_t rank = 0; rank < n_ranks; rank++) {
      const PipelineActions& actions = schedule.ranks[rank];
      for (size_t next = step.ranks[rank].actions.size(); next < actions.size(); next++) {
        check(static_cast<int>(rank), actions[next]);
        const double ready = times.ready_at(actions[next]);
        if (ready < 0) break;
        compute(rank, actions[next], ready);
        goes_on = true;
      }
    }
  }

  for (size_t rank = 0; rank < n_ranks; rank++) {
    const size_t done = step.ranks[rank].actions.size();
    require(done == schedule.ranks[rank].size(), Status::kInternal, "rank ", rank,
            " of the pipeline schedule waits for ever at ",
            done < schedule.ranks[rank].size() ? text_of(schedule.ranks[rank][done], shape) : "");
  }
  for (int stage = 0; stage < shape.stages(); stage++)
    for (int micro_batch = 0; micro_batch < shape.micro_batches; micro_batch++)
      require(times.is_done(Kind::kWeightBackward, stage, micro_batch), Status::kInternal,
              "the pipeline schedule has no backward of micro-batch ", micro_batch, " by stage ", stage);
  return step;
}

}  // namespace accel::parallel
