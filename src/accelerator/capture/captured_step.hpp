// SPDX-License-Identifier: Apache-2.0
// Captured step: a training step that a device records after some ordinary ones, and then does by one call.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "accelerator/capture/recorded_step.hpp"
#include "config/generated/settings/capture/capture.hpp"

namespace accel::accelerator {

class CapturedStep {
 public:
  // Both are those of the accelerator, which outlives this.
  CapturedStep(state::State& state, const PreparedObjects& prepared, StepFunction step,
               const CaptureSettings& settings);

  // Takes one step, and returns what the function returned, without gradient history. Tensors of the CPU among the
  // inputs come to the device first. Steps are ordinary ones where the device has no graphs.
  c10::IValue run(const c10::IValue& inputs);

  struct Counts {
    int64_t steps = 0;     // all of them
    int64_t captures = 0;  // recordings that were made, also of steps whose settings have changed
    int64_t replays = 0;   // steps that a graph did
  };
  const Counts& counts() const { return counts_; }
  bool uses_graphs() const { return recording_obstacle_.empty(); }

 private:
  c10::IValue run_plainly(const c10::IValue& inputs);
  c10::IValue warm_up(const c10::IValue& inputs);
  c10::IValue record(const c10::IValue& inputs);
  c10::IValue replay(RecordedStep& recorded, const c10::IValue& inputs);

  state::State& state_;
  const PreparedObjects& prepared_;
  const StepFunction step_;
  const CaptureSettings settings_;
  const std::string recording_obstacle_;
  bool is_running_ = false;
  int64_t warmups_ = 0;
  Counts counts_;
  std::optional<c10::Stream> stream_;  // of warm-ups and captures
  std::vector<std::unique_ptr<RecordedStep>> recorded_;
};

}  // namespace accel::accelerator
