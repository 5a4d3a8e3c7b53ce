// SPDX-License-Identifier: Apache-2.0
// Overflow flag: whether gradients have infinities or NaN. Work of their device reads it there, and the host reads
// it when the device has got that far.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <memory>
#include <mutex>
#include <optional>

namespace accel::precision {

class OverflowFlag {
 public:
  // `found` is a float32 scalar, not 0 after an overflow, and nobody changes it from here on. On a device its copy to
  // the host is queued behind the other work of the current stream.
  explicit OverflowFlag(at::Tensor found);
  // The flag of a step that a device records: nothing is computed, so that nothing overflows. Each time that the step
  // is done, `found` is that of another flag.
  static std::shared_ptr<OverflowFlag> recorded(at::Tensor found);

  const at::Tensor& tensor() const { return found_; }
  bool is_on_host() const { return found_.is_cpu(); }
  bool is_recorded() const { return is_recorded_; }
  // Whether value() answers at once.
  bool is_known() const;
  // Waits until the device has got that far. Of any thread.
  bool value() const;

 private:
  OverflowFlag() = default;

  at::Tensor found_;
  at::Tensor host_;                     // page-locked; undefined where the device has no such memory
  std::shared_ptr<c10::Event> copied_;  // behind the work that finds it
  mutable std::mutex mutex_;
  mutable std::optional<bool> value_;
  bool is_recorded_ = false;
};

}  // namespace accel::precision
