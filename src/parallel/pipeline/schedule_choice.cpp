// SPDX-License-Identifier: Apache-2.0
#include "parallel/pipeline/schedule_choice.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "parallel/pipeline/schedules/schedules.hpp"

namespace accel::parallel {
namespace {

// A schedule must be faster by this share to be taken in place of one that comes before it: the costs are measured.
constexpr double kNotableGain = 0.002;

struct NamedSchedule {
  const char* name;
  int min_stages_per_rank, max_stages_per_rank;  // 0: any
  PipelineSchedule (*make)(const ScheduleRequest& request);
  bool (*fits)(int ranks, int micro_batches) = nullptr;  // null: always
};

constexpr NamedSchedule kSchedules[] = {
    {"1f1b", 1, 1,
     [](const ScheduleRequest& request) {
       return one_forward_one_backward_schedule(request.ranks, request.micro_batches, request.max_in_flight);
     }},
    {"gpipe", 1, 1,
     [](const ScheduleRequest& request) { return gpipe_schedule(request.ranks, request.micro_batches); }},
    {"zero_bubble", 1, 1,
     [](const ScheduleRequest& request) {
       return zero_bubble_schedule(request.ranks, request.micro_batches, request.max_in_flight);
     }},
    {"interleaved", 2, 0,
     [](const ScheduleRequest& request) {
       return interleaved_schedule(request.ranks, request.micro_batches, request.stages_per_rank);
     },
     &can_interleave},
    {"zero_bubble_v", 2, 2,
     [](const ScheduleRequest& request) { return zero_bubble_v_schedule(request.ranks, request.micro_batches); }},
};

PipelineSchedule make_named(const NamedSchedule& named, ScheduleRequest request) {
  const int stages = request.stages_per_rank == 0 ? named.min_stages_per_rank : request.stages_per_rank;
  require(
      stages >= named.min_stages_per_rank && (named.max_stages_per_rank == 0 || stages <= named.max_stages_per_rank),
      Status::kInvalidArgument, "stages_per_rank is ", stages, ", but a rank of the schedule \"", named.name, "\" has ",
      named.min_stages_per_rank, named.max_stages_per_rank == 0 ? " or more" : "",
      "; leave it out, or take another schedule");
  request.stages_per_rank = stages;
  PipelineSchedule schedule = named.make(request);
  if (request.max_in_flight == 0) return schedule;
  const std::vector<StageCost> any(static_cast<size_t>(schedule.shape.stages()));
  const double kept = simulate(schedule, {any}).peak_in_flight();
  require(kept <= request.max_in_flight, Status::kInvalidArgument, "the schedule \"", named.name, "\" keeps ", kept,
          " micro-batches on a rank, more than max_in_flight ", request.max_in_flight,
          "; raise it, or take \"1f1b\", \"zero_bubble\" or \"auto\"");
  return schedule;
}

// The fastest within the memory; of equal ones the first.
class Fastest {
 public:
  void offer(PipelineSchedule&& schedule, const PipelineCosts& costs, int max_in_flight) {
    const SimulatedStep step = simulate(schedule, costs);
    if (max_in_flight > 0 && step.peak_in_flight() > max_in_flight) return;
    if (schedule_ && step.seconds > seconds_ * (1 - kNotableGain)) return;
    schedule_ = std::move(schedule);
    seconds_ = step.seconds;
  }
  bool has_schedule() const { return schedule_.has_value(); }
  PipelineSchedule take() { return *std::move(schedule_); }

 private:
  std::optional<PipelineSchedule> schedule_;
  double seconds_ = 0;
};

PipelineSchedule choose_fastest(const ScheduleRequest& request, const CostsOfCut& costs_of) {
  const auto try_chunks = [&](int stages_per_rank, Fastest& fastest) {
    const PipelineCosts costs = costs_of(request.ranks * stages_per_rank);
    if (costs.stages.empty()) return;
    for (const NamedSchedule& named : kSchedules) {
      if (named.min_stages_per_rank > stages_per_rank ||
          (named.max_stages_per_rank != 0 && stages_per_rank > named.max_stages_per_rank) ||
          (named.fits != nullptr && !named.fits(request.ranks, request.micro_batches)))
        continue;
      ScheduleRequest one = request;
      one.stages_per_rank = stages_per_rank;
      fastest.offer(named.make(one), costs, request.max_in_flight);
    }
    const StageOrder order = stages_per_rank == 2 ? StageOrder::kV : StageOrder::kLoop;
    if (stages_per_rank <= 2)
      fastest.offer(
          greedy_schedule({request.ranks, request.micro_batches, stages_per_rank, order}, costs, request.max_in_flight),
          costs, request.max_in_flight);
  };
  Fastest fastest;
  if (request.stages_per_rank > 0) {
    try_chunks(request.stages_per_rank, fastest);
  } else {
    for (const int stages_per_rank : {1, 2}) try_chunks(stages_per_rank, fastest);
  }
  require(fastest.has_schedule(), Status::kInvalidArgument, "the model cannot be cut into stages for ", request.ranks,
          " ranks; take fewer ranks or stages_per_rank");
  return fastest.take();
}

}  // namespace

PipelineSchedule choose_schedule(const ScheduleRequest& request, const CostsOfCut& costs) {
  const std::pair<const char*, int> sizes[] = {{"the number of ranks", request.ranks},
                                               {"micro_batches", request.micro_batches}};
  for (const auto& [name, size] : sizes)
    require(size >= 1, Status::kInvalidArgument, name, " is ", size, "; expected 1 or more");
  require(request.stages_per_rank >= 0 && request.max_in_flight >= 0, Status::kInvalidArgument, "stages_per_rank is ",
          request.stages_per_rank, " and max_in_flight ", request.max_in_flight, "; expected 0 or more");
  require_numbered(int64_t{request.ranks} * std::max(request.stages_per_rank, 1), request.micro_batches);
  if (request.name == "auto") return choose_fastest(request, costs);
  const auto* const named = std::find_if(std::begin(kSchedules), std::end(kSchedules),
                                         [&](const NamedSchedule& one) { return request.name == one.name; });
  require(
      named != std::end(kSchedules), Status::kInvalidArgument, "the schedule \"", request.name,
      "\" is not known; expected \"gpipe\", \"1f1b\", \"interleaved\", \"zero_bubble\", \"zero_bubble_v\" or \"auto\"");
  return make_named(*named, request);
}

}  // namespace accel::parallel
