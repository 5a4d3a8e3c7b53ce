// SPDX-License-Identifier: Apache-2.0
// Late failures: those of calls that only a device waits for. No thread of the application does, so the next call of
// the group tells, or the next wait for the device.
#pragma once

#include <c10/core/DeviceType.h>

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>

namespace accel::comm {

// The late failure of one group. Any thread may call any of these at any time.
class LateFailure : public std::enable_shared_from_this<LateFailure> {
 public:
  // Keeps the first one that was not reported yet: later ones mostly follow from it.
  void set(const std::exception_ptr& error, c10::DeviceType device);
  // Throws it, once.
  void rethrow() {
    if (is_set_) rethrow_set();
  }
  bool is_of(c10::DeviceType device) const;

 private:
  void rethrow_set();

  std::atomic<bool> is_set_{false};
  mutable std::mutex mutex_;
  std::exception_ptr error_;
  c10::DeviceType device_ = c10::DeviceType::CPU;
};

// Throws that of a group of this process whose call was one of this kind of device, once.
void rethrow_late_failure(c10::DeviceType device);

}  // namespace accel::comm
