// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "parallel/pipeline/schedules/schedules.hpp"

namespace accel::parallel {
namespace {

using Kind = PipelineAction::Kind;

// Adds actions of a rank; each kind counts its micro-batches by itself, and those beyond the last are left out.
class RankOfV {
 public:
  RankOfV(const PipelineShape& shape, int rank) : shape_(shape), rank_(rank) {}

  void add(Kind kind, int chunk) {
    const int micro_batch = counts_[static_cast<size_t>(kind)][chunk]++;
    if (micro_batch < shape_.micro_batches) actions_.push_back({kind, shape_.stage_of(rank_, chunk), micro_batch});
  }
  int count(Kind kind, int chunk) const { return counts_[static_cast<size_t>(kind)][chunk]; }
  PipelineActions take() { return std::move(actions_); }

 private:
  const PipelineShape shape_;
  const int rank_;
  int counts_[4][2] = {};
  PipelineActions actions_;
};

PipelineActions actions_of(const PipelineShape& shape, int rank) {
  const int behind = shape.ranks - rank;  // and itself
  const int micro_batches = std::max(shape.micro_batches, 2 * shape.ranks - 1);
  RankOfV actions(shape, rank);
  for (int i = 0; i < 2 * behind - 1; i++) actions.add(Kind::kForward, 0);
  for (int i = 0; i < rank; i++)
    for (const int chunk : {1, 0}) actions.add(Kind::kForward, chunk);
  for (int i = 0; i < behind; i++)
    for (const Kind kind : {Kind::kForward, Kind::kInputBackward, Kind::kWeightBackward}) actions.add(kind, 1);
  while (actions.count(Kind::kForward, 1) < micro_batches) {
    if (actions.count(Kind::kForward, 0) < micro_batches) actions.add(Kind::kForward, 0);
    for (const Kind kind : {Kind::kInputBackward, Kind::kWeightBackward}) actions.add(kind, 0);
    for (const Kind kind : {Kind::kForward, Kind::kInputBackward, Kind::kWeightBackward}) actions.add(kind, 1);
  }
  for (int i = 0; i < rank; i++)
    for (const int chunk : {0, 1}) actions.add(Kind::kInputBackward, chunk);
  for (int i = 0; i < behind; i++)
    for (const Kind kind : {Kind::kInputBackward, Kind::kWeightBackward}) actions.add(kind, 0);
  for (const int chunk : {1, 0})
    while (actions.count(Kind::kWeightBackward, chunk) < micro_batches) actions.add(Kind::kWeightBackward, chunk);
  return actions.take();
}

}  // namespace

PipelineSchedule zero_bubble_v_schedule(int ranks, int micro_batches) {
  PipelineSchedule schedule{{ranks, micro_batches, 2, StageOrder::kV}, {}};
  for (int rank = 0; rank < ranks; rank++) schedule.ranks.push_back(actions_of(schedule.shape, rank));
  return schedule;
}

}  // namespace accel::parallel
