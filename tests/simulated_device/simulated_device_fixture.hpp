// SPDX-License-Identifier: Apache-2.0
// The simulated device for GoogleTest: loaded once in a process, and as it was after each test.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "simulated_device.h"

namespace simulated_device::tests {

// The functions of simulated_device.h.
struct Library {
  template <typename Function>
  static void find(void* library, const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(library, name));
    if (!*function) throw std::runtime_error(dlerror());
  }

  // From the path in SIMULATED_DEVICE_LIBRARY, which the build sets for each test.
  Library() {
    const char* const path = std::getenv("SIMULATED_DEVICE_LIBRARY");
    if (!path)
      throw std::runtime_error("SIMULATED_DEVICE_LIBRARY is not set; expected the path of libsimulated_device.so");
    void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) throw std::runtime_error(dlerror());
    find(library, "simulated_device_get_settings", &get_settings);
    find(library, "simulated_device_configure", &configure);
    find(library, "simulated_device_fail_allocation", &fail_allocation);
    find(library, "simulated_device_fail_copy", &fail_copy);
    find(library, "simulated_device_lose", &lose);
    find(library, "simulated_device_restore", &restore);
    find(library, "simulated_device_run_kernel", &run_kernel);
    find(library, "simulated_device_get_statistics", &get_statistics);
    find(library, "simulated_device_reset_peak_pinned", &reset_peak_pinned);
  }

  decltype(&simulated_device_get_settings) get_settings;
  decltype(&simulated_device_configure) configure;
  decltype(&simulated_device_fail_allocation) fail_allocation;
  decltype(&simulated_device_fail_copy) fail_copy;
  decltype(&simulated_device_lose) lose;
  decltype(&simulated_device_restore) restore;
  decltype(&simulated_device_run_kernel) run_kernel;
  decltype(&simulated_device_get_statistics) get_statistics;
  decltype(&simulated_device_reset_peak_pinned) reset_peak_pinned;
};

inline const Library& library() {
  static const Library library;
  return library;
}

// A test with simulated devices. Settings and faults that it changes are taken back at its end.
class SimulatedDeviceTest : public testing::Test {
 protected:
  SimulatedDeviceTest() { library().get_settings(&before_); }
  ~SimulatedDeviceTest() override {
    library().restore();
    library().configure(&before_);
    for (int32_t index = 0; index < before_.device_count; ++index)
      impl().synchronizeDevice(static_cast<c10::DeviceIndex>(index));
  }

  static c10::Device device(int index = 0) {
    return c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(index));
  }
  // Current device, streams and events.
  static c10::impl::VirtualGuardImpl impl() { return c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1); }

  // Changes settings until the end of the test: configure([](auto& settings) { settings.seed = 7; }).
  template <typename Change>
  static void configure(Change&& change) {
    simulated_device_settings settings;
    library().get_settings(&settings);
    change(settings);
    const char* const problem = library().configure(&settings);
    ASSERT_EQ(problem, nullptr) << problem;
  }
  static simulated_device_statistics statistics(int index = 0) {
    simulated_device_statistics statistics;
    library().get_statistics(index, &statistics);
    return statistics;
  }

 private:
  simulated_device_settings before_;
};

}  // namespace simulated_device::tests
