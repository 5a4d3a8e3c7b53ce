// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "parallel/pipeline/schedule_simulator.hpp"
#include "parallel/pipeline/schedules/schedules.hpp"

namespace accel::parallel {
namespace {

using Kind = PipelineAction::Kind;

struct Choice {
  PipelineAction action;
  int chunk;
  double begin;
};

class GreedyRank {
 public:
  GreedyRank(const PipelineShape& shape, int rank, int max_in_flight)
      : shape_(shape),
        rank_(rank),
        max_in_flight_(max_in_flight),
        chunks_(static_cast<size_t>(shape.stages_per_rank)) {}

  // The action that the rank would compute next, as far as the others have come. What is ready when the rank is free
  // comes before what it would have to wait for, and gradients of inputs come first: other ranks wait for them.
  std::optional<Choice> choose(const StageTimes& times) const {
    std::optional<Choice> best;
    for (const Kind kind : {Kind::kInputBackward, Kind::kForward, Kind::kWeightBackward})
      for (int chunk = shape_.stages_per_rank - 1; chunk >= 0; chunk--) {  // what is nearer to its backward
        const auto choice = next_of(kind, chunk, times);
        if (choice && (!best || choice->begin < best->begin)) best = choice;
      }
    return best;
  }

  void compute(const Choice& choice, const PipelineCosts& costs, StageTimes& times) {
    free_at_ = choice.begin + costs.stages[static_cast<size_t>(choice.action.stage)].of(choice.action.kind);
    times.set_end(choice.action, free_at_);
    actions_.push_back(choice.action);
    chunks_[static_cast<size_t>(choice.chunk)].done[static_cast<size_t>(choice.action.kind)]++;
  }

  PipelineActions take() { return std::move(actions_); }

 private:
  struct Chunk {
    int done[4] = {};
    int of(Kind kind) const { return done[static_cast<size_t>(kind)]; }
  };

  // A micro-batch whose forwards begin has room for all chunks, so that what is begun can always end.
  bool has_room() const {
    int ended = chunks_[0].of(Kind::kWeightBackward);
    for (const Chunk& chunk : chunks_) ended = std::min(ended, chunk.of(Kind::kWeightBackward));
    return chunks_[0].of(Kind::kForward) - ended < max_in_flight_;
  }

  std::optional<Choice> next_of(Kind kind, int chunk, const StageTimes& times) const {
    const int micro_batch = chunks_[static_cast<size_t>(chunk)].of(kind);
    if (micro_batch == shape_.micro_batches || (kind == Kind::kForward && chunk == 0 && !has_room()))
      return std::nullopt;
    const PipelineAction action{kind, shape_.stage_of(rank_, chunk), micro_batch};
    const double ready = times.ready_at(action);
    if (ready < 0) return std::nullopt;
    return Choice{action, chunk, std::max(ready, free_at_)};
  }

  const PipelineShape shape_;
  const int rank_, max_in_flight_;
  std::vector<Chunk> chunks_;
  double free_at_ = 0;
  PipelineActions actions_;
};

}  // namespace

PipelineSchedule greedy_schedule(const PipelineShape& shape, const PipelineCosts& costs, int max_in_flight) {
  StageTimes times(shape, costs);
  std::vector<GreedyRank> ranks;
  for (int rank = 0; rank < shape.ranks; rank++)
    ranks.emplace_back(shape, rank, max_in_flight > 0 ? max_in_flight : shape.ranks);
  for (;;) {  // the action that begins first; of several, the rank that is nearest to the end of the chain
    std::optional<Choice> first;
    GreedyRank* chosen = nullptr;
    for (GreedyRank& rank : ranks) {
      const auto choice = rank.choose(times);
      if (!choice || (first && choice->begin > first->begin)) continue;
      first = choice;
      chosen = &rank;
    }
    if (chosen == nullptr) break;
    chosen->compute(*first, costs, times);
  }
  PipelineSchedule schedule{shape, {}};
  for (GreedyRank& rank : ranks) schedule.ranks.push_back(rank.take());
  return schedule;
}

}  // namespace accel::parallel
