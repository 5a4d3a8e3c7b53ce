// SPDX-License-Identifier: Apache-2.0
// Tests of the engine on any device. The environment variable ACCEL_TEST_DEVICE names the kind: without it, it is the
// simulated device of SIMULATED_DEVICE_LIBRARY, whose delays and faults a test may set. Any other kind, and a simulated
// device that ACCEL_DEVICE_PLUGINS loads, is used through LibTorch's interfaces alone: what needs more is skipped.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "simulated_device/simulated_device_fixture.hpp"
#include "tensor/device/device_availability.hpp"
#include "tensor/device/device_work.hpp"
#include "tolerances.hpp"

// Skips a test that needs what only the simulated device has, with the reason.
#define NEEDS_SIMULATION(what) \
  if (!is_simulated()) GTEST_SKIP() << "only the simulated device has " what
// Skips a test that needs more devices than there are.
#define NEEDS_DEVICES(count)    \
  if (device_count() < (count)) \
  GTEST_SKIP() << "needs " << (count) << " devices of the kind " << kind() << "; there are " << device_count()

namespace accel::tests {

// How late the streams of the simulated device are, at random. A real device's are late by themselves.
struct LateStreams {
  uint64_t seed;
  int64_t microseconds;
};

class DeviceTest : public testing::Test {
 protected:
  explicit DeviceTest(std::optional<LateStreams> late = std::nullopt) : late_(late) {}
  ~DeviceTest() override {
    if (!is_simulated()) return;
    simulation().restore();
    if (before_) simulation().configure(&*before_);
    for (int index = 0; index < device_count(); index++) tensor::synchronize(device(index));
  }

  void SetUp() override {
    const std::string reason = unavailable_reason();
    if (!reason.empty()) GTEST_SKIP() << reason;
    if (!is_simulated()) return;
    simulation().get_settings(&before_.emplace());
    if (late_) be_late(*late_);
  }

  // "sim", "cuda"
  static const std::string& kind() {
    static const std::string kind = [] {
      const char* const given = std::getenv("ACCEL_TEST_DEVICE");
      return std::string(given == nullptr ? "sim" : given);
    }();
    return kind;
  }
  static bool is_simulated() {
    return std::getenv("ACCEL_TEST_DEVICE") == nullptr && std::getenv("SIMULATED_DEVICE_LIBRARY") != nullptr;
  }
  // Why no test can run; empty if one can. Loads what the kind needs.
  static std::string unavailable_reason() {
    if (is_simulated()) simulation();
    const auto number = tensor::find_device_kind(kind());
    return number ? tensor::unavailable_reason(*number) : text("'", kind(), "' is not a kind of device");
  }
  static c10::DeviceType device_type() { return *tensor::device_type(*tensor::find_device_kind(kind())); }
  static int device_count() { return static_cast<int>(tensor::device_count(*tensor::find_device_kind(kind()))); }

  // Of a rank or of a device map. Where there are fewer, some share one.
  static c10::Device device(int index = 0) {
    return c10::Device(device_type(), static_cast<c10::DeviceIndex>(index % device_count()));
  }
  // Current device, streams and events.
  static c10::impl::VirtualGuardImpl impl() { return c10::impl::VirtualGuardImpl(device_type()); }
  // "cpu:ucx,sim:staged"
  static std::string backends(const std::string& name = "staged") { return text("cpu:ucx,", kind(), ":", name); }
  // How far from the CPU's numbers those of the device may be.
  static double device_tolerance(c10::ScalarType computed_in) {
    const bool has_kernels_of_the_cpu = kind() == "sim";
    return has_kernels_of_the_cpu ? 0 : tolerance(computed_in);
  }
  // By tensors.
  static int64_t allocated(int index = 0) { return tensor::device_memory(device(index)).allocated; }

  // Queues work on the current stream that takes some time.
  static void keep_busy(c10::Device device, int64_t microseconds) {
    if (is_simulated()) return simulation().run_kernel(device.index(), microseconds);
    constexpr int64_t kWidth = 256, kMicroseconds = 50;  // of a product; more on a slow device
    at::Tensor product = at::ones({kWidth, kWidth}, device);
    for (int64_t i = 0; i < microseconds; i += kMicroseconds) product = product.mm(product);
  }

  // Only where is_simulated().
  static const simulated_device::tests::Library& simulation() { return simulated_device::tests::library(); }
  // Changes settings until the end of the test: configure([](auto& settings) { settings.seed = 7; }).
  template <typename Change>
  static void configure(Change&& change) {
    simulated_device_settings settings;
    simulation().get_settings(&settings);
    change(settings);
    const char* const problem = simulation().configure(&settings);
    ASSERT_EQ(problem, nullptr) << problem;
  }
  static void be_late(LateStreams late) {
    if (!is_simulated()) return;
    configure([late](auto& settings) {
      settings.seed = late.seed;
      settings.random_delay_us = late.microseconds;
    });
  }

 private:
  const std::optional<LateStreams> late_;
  std::optional<simulated_device_settings> before_;
};

}  // namespace accel::tests
