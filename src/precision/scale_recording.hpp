// SPDX-License-Identifier: Apache-2.0
// Scale recording: loss scaling of a step that a device records and does again. The scale stays in the memory that the
// recording reads and changes, and the host reads overflows after each time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "precision/grad_scaler.hpp"
#include "precision/overflow_flag.hpp"

namespace accel::precision {

class ScaleRecording {
 public:
  // Begins to record, with the scale on the device. Waits for the flags of former steps.
  ScaleRecording(std::shared_ptr<GradScaler> scaler, c10::Device device);
  // Without end() the step has not been recorded, and is taken back.
  ~ScaleRecording();
  ScaleRecording(const ScaleRecording&) = delete;
  ScaleRecording& operator=(const ScaleRecording&) = delete;

  void end();
  // The steps of optimizers have these, in their order.
  const std::vector<std::shared_ptr<OverflowFlag>>& flags() const { return flags_; }
  // Whether the scale still is in the memory that the recording has.
  bool is_current() const;
  // After the step has been queued once more: flags of what it finds, in the order of flags(), which the scaler
  // follows.
  std::vector<std::shared_ptr<OverflowFlag>> note_replay() const;

 private:
  const std::shared_ptr<GradScaler> scaler_;
  DeviceLossScale scale_;
  int64_t former_backwards_;
  std::vector<std::shared_ptr<OverflowFlag>> flags_;
};

}  // namespace accel::precision
