// SPDX-License-Identifier: Apache-2.0
#include "faults.hpp"

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "device.hpp"

namespace simulated_device {
namespace {

// "DEVICE:N"; no device if the variable is not set.
bool fault_of(const char* variable, int* device, long long* n) {
  const char* const text = std::getenv(variable);
  if (!text || !*text) return false;
  char rest = 0;
  if (std::sscanf(text, "%d:%lld%c", device, n, &rest) != 2)
    throw std::invalid_argument(std::string(variable) + " is '" + text + "'; expected DEVICE:N");
  return true;
}

}  // namespace

Faults& faults() {
  static Faults* const faults = new Faults;
  return *faults;
}

void Faults::plan(Countdown& countdown, int device, int64_t n) {
  const std::lock_guard<std::mutex> lock(mutex_);
  countdown.at(static_cast<size_t>(device < 0 ? kMaxDevices : device)) = n;
}

bool Faults::counts_down(Countdown& countdown, c10::DeviceIndex device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  bool fails = false;
  for (const int entry : {static_cast<int>(device), kMaxDevices}) {
    int64_t& calls = countdown[static_cast<size_t>(entry)];
    if (calls > 0 && --calls == 0) fails = true;
  }
  return fails;
}

void Faults::clear() {
  const std::lock_guard<std::mutex> lock(mutex_);
  allocations_ = {};
  copies_ = {};
}

void plan_faults_of_environment() {
  int device = 0;
  long long n = 0;
  if (fault_of("SIMULATED_DEVICE_FAIL_ALLOCATION", &device, &n)) faults().fail_allocation(device, n);
  if (fault_of("SIMULATED_DEVICE_FAIL_COPY", &device, &n)) faults().fail_copy(device, n);
}

}  // namespace simulated_device
