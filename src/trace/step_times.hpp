// SPDX-License-Identifier: Apache-2.0
// Step times: the time of training steps by parts.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

namespace accel {

enum class StepPart : uint8_t { kData, kForward, kBackward, kCommunication, kOptimizer, kOther };
constexpr size_t kStepParts = 6;
const char* step_part_name(StepPart part);

// [Note: step times] The thread of the training loop is always in one part, and each change reads the processor's
// counter once: ten changes per step take about 200 ns. A step ends when the loop fetches data or computes again after
// an optimizer has stepped, so the number of optimizers, schedulers and calls of zero_grad does not matter. Other
// threads are not measured: work beside the loop costs it no time until the loop waits for it.
class StepTimes {
 public:
  using Seconds = std::array<double, kStepParts>;
  struct Report {
    int64_t steps = 0;  // that have ended since the last reset
    Seconds latest{}, mean{};
    double open_step = 0;  // seconds of the step that has not ended
  };

  // During its lifetime time is counted for this part; the innermost section counts.
  class Section {
   public:
    Section(StepTimes& times, StepPart part) : times_(times.enter(part, former_) ? &times : nullptr) {}
    ~Section() {
      if (times_) times_->change_to(former_);
    }
    Section(const Section&) = delete;
    Section& operator=(const Section&) = delete;

   private:
    StepPart former_ = StepPart::kOther;
    StepTimes* const times_;
  };

  // An optimizer has changed the parameters.
  void note_update() { updated_ = true; }

  // For the loop's thread.
  Report report();
  void reset();
  // Runs on the loop's thread when a step has ended. Only for that thread; nothing: no more.
  void set_step_ended(std::function<void()> step_ended) { step_ended_ = std::move(step_ended); }
  // Before spans end: what is under way on the loop's thread belongs to them until now.
  void end_recording();

 private:
  using Ticks = std::array<uint64_t, kStepParts>;

  // Whether this thread's time is counted.
  bool enter(StepPart part, StepPart& former);
  void change_to(StepPart part);
  void end_step();

  std::atomic<const void*> thread_{nullptr};  // of the loop
  StepPart part_ = StepPart::kOther;
  bool updated_ = false;
  uint64_t begun_ = 0;  // when part_ began; 0: not yet
  Ticks step_{}, latest_{}, total_{};
  int64_t steps_ = 0;
  uint64_t first_tick_ = 0, step_begun_ = 0;
  std::function<void()> step_ended_;
  std::chrono::steady_clock::time_point first_time_;
};

}  // namespace accel
