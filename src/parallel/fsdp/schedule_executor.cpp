// SPDX-License-Identifier: Apache-2.0
#include "parallel/fsdp/schedule_executor.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace {

bool returns_parameters(const ParameterGroup& group, const std::vector<at::Tensor>& outputs) {
  return std::any_of(outputs.begin(), outputs.end(), [&](const at::Tensor& output) {
    return output.defined() && output.has_storage() &&
           group.gather().has_storage(output.storage().unsafeGetStorageImpl());
  });
}

// A backward keeps gradients without an exchange; a later one may not reach their group.
void reduce_pending_gradients(GradientReduction& gradients) {
  if (!gradients.has_pending_gradients()) return;
  gradients.begin_backward();
  gradients.start_reduce();
  gradients.finish_reduce();
}

}  // namespace

ScheduleExecutor::ScheduleExecutor(ParallelModel& model, const std::vector<std::unique_ptr<ParameterGroup>>& groups,
                                   ShardingSchedule schedule, const CommunicatorPtr& shard_ranks)
    : model_(model),
      groups_(groups),
      schedule_(std::move(schedule)),
      announcements_(shard_ranks, groups),
      fp8_scales_(groups) {}

void ScheduleExecutor::note_failed_backward(const std::string& error) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (!schedule_.in_backward()) return;
  failed_backward_ = error;
  schedule_.abandon_backward();
}

// The gradients of weights may come in a backward of their own, which no module announces.
void ScheduleExecutor::begin_micro_batches(MicroBatches kind, bool announces) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  for (const auto& group : groups_) {
    group->gather().note_update();
    if (kind != MicroBatches::kEvaluated) group->gradients().begin_backward();
  }
  fp8_scales_.keep(false);
  fp8_scales_.update(*model_.module());
  execute(schedule_.set_micro_batches(true));
  announcements_.begin_micro_batches(announces);
}

bool ScheduleExecutor::end_gathers() {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  return announcements_.end();
}

void ScheduleExecutor::end_micro_batches(bool have_failed) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  announcements_.end_micro_batches();
  for (const auto& group : groups_)
    if (group->gradients().in_backward())  // not in an evaluation
      have_failed ? group->gradients().drop_gradients() : group->gradients().keep_gradients();
  if (have_failed) {
    schedule_.abandon_backward();
    events_.latest.clear();
  }
  execute(schedule_.set_micro_batches(false));
}

void ScheduleExecutor::require_intact() const {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  require(!failed_backward_, Status::kInvalidState,
          "the backward before this forward failed: ", failed_backward_.value_or(""),
          "; other ranks may have reduced gradients that this one has not, so the model cannot be trained on: end the "
          "ranks and restart them from a checkpoint");
}

void ScheduleExecutor::begin_forward(bool records) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  execute(schedule_.begin_forward(records));
  // Whoever changed them: an optimizer, or the application by the address of their memory.
  for (const auto& group : groups_) group->gather().note_update();
  if (!announcements_.in_micro_batches()) fp8_scales_.update(*model_.module());
  if (records) fp8_scales_.keep(!model_.gradient_sync());  // the gradients wait for those of the next forward
  if (records && !repeats_) events_.latest.clear();
}

void ScheduleExecutor::note(const Event& event) {
  if (!repeats_ && (schedule_.in_backward() || at::GradMode::is_enabled())) events_.latest.push_back(event);
}

void ScheduleExecutor::repeat(const Event& event, bool records) {
  switch (event.kind) {
    case Event::Kind::kForward:
      before_forward(event.group);
      return;
    case Event::Kind::kForwardEnd:
      execute(schedule_.end_module(event.group, {event.output.is_recorded && records, event.output.has_parameters}));
      return;
    case Event::Kind::kBackward:
      before_backward(event.group);
      return;
    case Event::Kind::kInputs:
      inputs_arrived(event.group);
      return;
    case Event::Kind::kBackwardEnd:
      end_backward();
      return;
    case Event::Kind::kGradient:
      break;
  }
  ParameterGroup& group = *groups_[event.group];
  begin_backward(event.group);
  if (model_.gradient_sync()) group.parameters()[event.parameter]->gradient().add_zeros();
  gradient_arrived(event.group, event.parameter);
}

void ScheduleExecutor::repeat(bool records, const std::function<void()>& begin) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  repeats_ = true;
  const auto restored = c10::make_scope_exit([this] { repeats_ = false; });
  begin();
  for (const Event& event : events_.former) {
    const bool is_of_forward = event.kind == Event::Kind::kForward || event.kind == Event::Kind::kForwardEnd;
    if (!is_of_forward && !records) break;
    repeat(event, records);
  }
}

void ScheduleExecutor::before_forward(size_t group) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  note({Event::Kind::kForward, group, 0, {}});
  execute(schedule_.begin_module(group));
}

void ScheduleExecutor::after_forward(size_t group, const c10::IValue& output) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  std::vector<at::Tensor> outputs;
  tree::for_each_tensor(output, [&](const at::Tensor& tensor) { outputs.push_back(tensor); });
  bool is_recorded = false;
  for (const at::Tensor& tensor : outputs) {
    if (!tensor.defined() || !tensor.requires_grad() || !at::GradMode::is_enabled()) continue;
    is_recorded = true;
    tensor.register_hook([this, model = model_.weak_from_this(), group](const at::Tensor& /*gradient*/) {
      if (const auto alive = model.lock()) before_backward(group);
    });
  }
  const ModuleOutput kind{is_recorded, returns_parameters(*groups_[group], outputs)};
  note({Event::Kind::kForwardEnd, group, 0, kind});
  execute(schedule_.end_module(group, kind));
}

void ScheduleExecutor::execute(const ShardingActions& actions) {
  using Kind = ShardingAction::Kind;
  for (const ShardingAction& action : actions) {
    ParameterGroup& group = *groups_[action.group];
    switch (action.kind) {
      case Kind::kStartUnshard:
        announcements_.announce(action.group);
        group.gather().start_unshard();
        break;
      case Kind::kUnshard:
        announcements_.announce(action.group);
        group.gather().unshard();
        announcements_.check(action.group);
        break;
      case Kind::kReshard:
        group.gather().reshard();
        break;
      case Kind::kReshardForBackward:
        group.gather().reshard_for_backward();
        break;
      case Kind::kStartReduce:
        group.gradients().start_reduce();
        break;
      case Kind::kFinishReduce:
        group.gradients().finish_reduce();
        break;
      case Kind::kKeepGradients:
        group.gradients().keep_gradients();
        if (announcements_.in_micro_batches()) group.gradients().begin_backward();
        break;
      case Kind::kReduceKept:
        reduce_pending_gradients(group.gradients());
        break;
    }
  }
}

void ScheduleExecutor::begin_backward(size_t group) {
  if (schedule_.begin_backward(group) && !repeats_)
    torch::autograd::Engine::get_default_engine().queue_callback([this, model = model_.weak_from_this()] {
      if (const auto alive = model.lock()) end_backward();
    });
  groups_[group]->gradients().begin_backward();
}

void ScheduleExecutor::before_backward(size_t group) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  begin_backward(group);
  note({Event::Kind::kBackward, group, 0, {}});
  execute(schedule_.begin_module_backward(group));
}

void ScheduleExecutor::gradient_arrived(size_t group, size_t parameter) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  ParameterGroup& own = *groups_[group];
  require(own.gather().is_unsharded(), Status::kInvalidState, "the gradient of '", own.parameters()[parameter]->name(),
          "' was computed while the parameter was not gathered; expected that a loss depends on the module '",
          own.name(), "' through the values that it returned only");
  begin_backward(group);
  note({Event::Kind::kGradient, group, parameter, {}});
  if (own.gradients().note_arrival(parameter))
    execute(schedule_.complete_gradients(group, model_.gradient_sync(), own.gradients().has_frozen()));
}

void ScheduleExecutor::inputs_arrived(size_t group) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  note({Event::Kind::kInputs, group, 0, {}});
  execute(schedule_.complete_inputs(group, groups_[group]->gradients().all_arrived()));
}

void ScheduleExecutor::end_backward() {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (!schedule_.in_backward()) return;
  if (model_.gradient_sync()) fp8_scales_.keep(false);
  execute(schedule_.end_backward(model_.gradient_sync()));
  if (repeats_) return;
  // A further backward over the same forward belongs to the same step.
  events_.latest.push_back({Event::Kind::kBackwardEnd, 0, 0, {}});
  if (events_.latest.front().kind == Event::Kind::kForward) events_.former.clear();
  events_.former.insert(events_.former.end(), events_.latest.begin(), events_.latest.end());
  events_.latest.clear();
}

void ScheduleExecutor::finish_step() {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  fp8_scales_.keep(false);
  if (schedule_.in_backward()) return;
  for (const auto& group : groups_) reduce_pending_gradients(group->gradients());
  for (const auto& group : groups_) group->gather().reshard();
}

bool ScheduleExecutor::is_unsharded(size_t group) const {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  return groups_[group]->gather().is_unsharded();
}

}  // namespace accel::parallel
