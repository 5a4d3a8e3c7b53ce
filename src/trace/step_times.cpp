// SPDX-License-Identifier: Apache-2.0
#include "trace/step_times.hpp"

#include <numeric>
#include <utility>

#include "base/tick_clock.hpp"
#include "trace/span.hpp"

namespace accel {
namespace {

const void* this_thread() {
  static thread_local const char here = 0;
  return &here;
}

StepTimes::Seconds in_seconds(const std::array<uint64_t, kStepParts>& ticks, double seconds_a_tick) {
  StepTimes::Seconds seconds{};
  for (size_t part = 0; part < kStepParts; part++) seconds[part] = static_cast<double>(ticks[part]) * seconds_a_tick;
  return seconds;
}

SpanKind span_kind_of(StepPart part) {
  static const SpanKind kinds[] = {SpanKind::kData, SpanKind::kForward,   SpanKind::kBackward,
                                   SpanKind::kWait, SpanKind::kOptimizer, SpanKind::kProgram};
  return kinds[static_cast<int>(part)];
}

void record_part(SpanKind kind, const char* name, uint64_t begun, uint64_t ended) {
  SpanRecord span;
  span.kind = kind;
  span.name = name;
  span.begun = begun;
  span.ended = ended;
  span.is_of_loop = true;
  Spans::add(std::move(span));
}

}  // namespace

const char* step_part_name(StepPart part) {
  static const char* const names[] = {"data", "forward", "backward", "communication", "optimizer", "other"};
  return names[static_cast<int>(part)];
}

bool StepTimes::enter(StepPart part, StepPart& former) {
  const void* const thread = this_thread();
  const bool begins_work = part != StepPart::kCommunication && part != StepPart::kOther;
  if (thread_.load(std::memory_order_relaxed) != thread) {
    if (!begins_work || part_ != StepPart::kOther) return false;
    thread_.store(thread, std::memory_order_relaxed);
  }
  if (begun_ == 0) {
    first_time_ = std::chrono::steady_clock::now();
    begun_ = first_tick_ = step_begun_ = ticks();
  }
  former = part_;
  change_to(part);
  if (updated_ && begins_work && part != StepPart::kOptimizer) end_step();
  return true;
}

void StepTimes::change_to(StepPart part) {
  const uint64_t now = ticks();
  step_[static_cast<size_t>(part_)] += now - begun_;
  if (Spans::are_recorded() && part_ != StepPart::kOther)
    record_part(span_kind_of(part_), step_part_name(part_), begun_, now);
  begun_ = now;
  part_ = part;
}

void StepTimes::end_step() {
  for (size_t part = 0; part < kStepParts; part++) total_[part] += step_[part];
  latest_ = step_;
  step_ = {};
  steps_ += 1;
  updated_ = false;
  if (Spans::are_recorded()) record_part(SpanKind::kStep, "step", step_begun_, begun_);
  step_begun_ = begun_;
  if (step_ended_) step_ended_();
}

StepTimes::Report StepTimes::report() {
  Report report;
  if (begun_ == 0) return report;
  if (updated_ && part_ == StepPart::kOther) {
    change_to(part_);
    end_step();
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - first_time_;
  const double seconds_a_tick = elapsed.count() / static_cast<double>(ticks() - first_tick_);
  report.steps = steps_;
  report.latest = in_seconds(latest_, seconds_a_tick);
  report.open_step =
      static_cast<double>(std::accumulate(step_.begin(), step_.end(), ticks() - begun_)) * seconds_a_tick;
  if (steps_ > 0) report.mean = in_seconds(total_, seconds_a_tick / static_cast<double>(steps_));
  return report;
}

void StepTimes::end_recording() {
  if (thread_.load(std::memory_order_relaxed) != this_thread() || begun_ == 0) return;
  if (step_ == Ticks{}) return;  // the step has just begun
  change_to(part_);
  record_part(SpanKind::kStep, "step", step_begun_, begun_);
}

void StepTimes::reset() {
  total_ = {};
  steps_ = 0;
}

}  // namespace accel
