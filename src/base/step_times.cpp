#include "base/step_times.hpp"

#include <numeric>

#ifdef __x86_64__
#include <x86intrin.h>
#endif

namespace accel {
namespace {

// Runs at the same rate on all cores; the rate is measured for the report.
uint64_t ticks() {
#if defined(__x86_64__)
  return __rdtsc();
#elif defined(__aarch64__)
  uint64_t count;
  asm volatile("mrs %0, cntvct_el0" : "=r"(count));
  return count;
#else
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

const void* this_thread() {
  static thread_local const char here = 0;
  return &here;
}

StepTimes::Seconds in_seconds(const std::array<uint64_t, kStepParts>& ticks, double seconds_a_tick) {
  StepTimes::Seconds seconds{};
  for (size_t part = 0; part < kStepParts; part++) seconds[part] = static_cast<double>(ticks[part]) * seconds_a_tick;
  return seconds;
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
    begun_ = first_tick_ = ticks();
  }
  former = part_;
  change_to(part);
  if (updated_ && begins_work && part != StepPart::kOptimizer) end_step();
  return true;
}

void StepTimes::change_to(StepPart part) {
  const uint64_t now = ticks();
  step_[static_cast<size_t>(part_)] += now - begun_;
  begun_ = now;
  part_ = part;
}

void StepTimes::end_step() {
  for (size_t part = 0; part < kStepParts; part++) total_[part] += step_[part];
  latest_ = step_;
  step_ = {};
  steps_ += 1;
  updated_ = false;
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

void StepTimes::reset() {
  total_ = {};
  steps_ = 0;
}

}  // namespace accel
