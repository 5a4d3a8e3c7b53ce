// SPDX-License-Identifier: Apache-2.0
// Failures on demand.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <mutex>

#include "settings.hpp"

namespace simulated_device {

class Faults {
 public:
  void fail_allocation(int device, int64_t n) { plan(allocations_, device, n); }
  void fail_copy(int device, int64_t n) { plan(copies_, device, n); }
  void clear();
  bool allocation_fails(c10::DeviceIndex device) { return counts_down(allocations_, device); }
  bool copy_fails(c10::DeviceIndex device) { return counts_down(copies_, device); }

 private:
  // How many calls until one fails, 0: none. The last entry is for any device.
  using Countdown = std::array<int64_t, kMaxDevices + 1>;

  void plan(Countdown& countdown, int device, int64_t n);
  bool counts_down(Countdown& countdown, c10::DeviceIndex device);

  std::mutex mutex_;
  Countdown allocations_{};
  Countdown copies_{};
};

Faults& faults();
// Those that environment variables ask for.
void plan_faults_of_environment();

}  // namespace simulated_device
