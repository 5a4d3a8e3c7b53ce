// SPDX-License-Identifier: Apache-2.0
// Schedule executor: turns what happens in a training step of a sharded model into the events of its schedule
// (schedule/sharding_schedule.hpp), and executes the actions on the model's groups.
//
// Note: a rank without inputs repeats the events of its latest step, with gradients of 0, and so executes the actions
// of the others.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "parallel/fsdp/gather/gather_announcements.hpp"
#include "parallel/fsdp/gather/gathered_scales.hpp"
#include "parallel/fsdp/parameter_group.hpp"
#include "parallel/parallel_model.hpp"
#include "parallel/schedule/sharding_schedule.hpp"

namespace accel::parallel {

class ScheduleExecutor {
 public:
  // `model` has this, and `groups`, that of the root last.
  ScheduleExecutor(ParallelModel& model, const std::vector<std::unique_ptr<ParameterGroup>>& groups,
                   ShardingSchedule schedule, const CommunicatorPtr& shard_ranks);
  ScheduleExecutor(const ScheduleExecutor&) = delete;
  ScheduleExecutor& operator=(const ScheduleExecutor&) = delete;

  // Events of a step; those of the backward come on any of autograd's threads.
  void begin_forward(bool records);
  void before_forward(size_t group);
  void after_forward(size_t group, const c10::IValue& output);
  void gradient_arrived(size_t group, size_t parameter);
  void inputs_arrived(size_t group);
  void note_failed_backward(const std::string& error);
  // Around forwards and backwards between two updates. Where parameters stay whole through all of these, they are on
  // their way now: nothing is exchanged before the end, so that an error of one rank leaves none waiting. Else each
  // gather has to be announced.
  void begin_micro_batches(MicroBatches kind, bool announces);
  // GradientExchange::end_gathers().
  bool end_gathers();
  // After an error of a step its gradients are gone, and the model can be trained on.
  void end_micro_batches(bool have_failed);
  // Throws after a backward that failed.
  void require_intact() const;
  // Reduces gradients that backwards saved, and releases all groups, unless a backward goes on.
  void finish_step();
  bool is_unsharded(size_t group) const;

  bool can_repeat() const { return !events_.former.empty(); }
  // On a rank without inputs: the events of the latest step, of its forward alone unless `records`. `begin` begins the
  // forward.
  void repeat(bool records, const std::function<void()>& begin);

 private:
  // A call of a module, or a gradient that arrived.
  struct Event {
    enum class Kind : uint8_t { kForward, kForwardEnd, kBackward, kGradient, kInputs, kBackwardEnd };
    Kind kind;
    size_t group;
    size_t parameter;     // of kGradient
    ModuleOutput output;  // of kForwardEnd
  };

  void before_backward(size_t group);
  // Under the mutex.
  void note(const Event& event);
  void repeat(const Event& event, bool records);
  void begin_backward(size_t group);
  void end_backward();
  void execute(const ShardingActions& actions);

  ParallelModel& model_;
  const std::vector<std::unique_ptr<ParameterGroup>>& groups_;
  mutable std::recursive_mutex mutex_;
  ShardingSchedule schedule_;
  std::optional<std::string> failed_backward_;
  bool repeats_ = false;  // in repeat()
  GatherAnnouncements announcements_;
  Fp8Scales fp8_scales_;
  struct {
    std::vector<Event> latest;  // since the latest forward that was recorded began
    std::vector<Event> former;  // of a forward and its backwards, complete
  } events_;
};

}  // namespace accel::parallel
