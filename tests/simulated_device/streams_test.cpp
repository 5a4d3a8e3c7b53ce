// SPDX-License-Identifier: Apache-2.0
// Streams and events: what waits sees the values, what does not wait does not.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "simulated_device_fixture.hpp"

namespace simulated_device::tests {
namespace streams_test {

using std::chrono::steady_clock;

double milliseconds_since(steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(steady_clock::now() - start).count();
}

class SimulatedStreams : public SimulatedDeviceTest {
 protected:
  // Two times a number that is computed on one stream, on another one.
  static float twice_on_another_stream(bool wait) {
    const at::Tensor number = at::ones({1}, device());
    impl().synchronizeDevice(0);
    const c10::Stream side = impl().getStreamFromGlobalPool(device());
    c10::Event event(c10::DeviceType::PrivateUse1);
    configure([](auto& settings) { settings.operator_delay_us = 100000; });
    {
      const c10::StreamGuard guard(side);
      number.fill_(21);
      event.record(side);
    }
    if (wait) event.block(impl().getStream(device()));
    return number.mul(2).item<float>();
  }
};

TEST_F(SimulatedStreams, AnEventOrdersThem) { EXPECT_EQ(twice_on_another_stream(true), 42); }

TEST_F(SimulatedStreams, WithoutAnEventOldValuesAreRead) { EXPECT_EQ(twice_on_another_stream(false), 2); }

TEST_F(SimulatedStreams, ANewTensorOfAnotherStreamHasNoValueYet) {
  const c10::Stream side = impl().getStreamFromGlobalPool(device());
  at::Tensor sum;
  {
    const c10::StreamGuard guard(side);
    const at::Tensor ones = at::ones({1}, device());
    configure([](auto& settings) { settings.operator_delay_us = 100000; });
    sum = ones.add(1);
  }
  EXPECT_TRUE(std::isnan(sum.item<float>()));
  impl().synchronizeStream(side);
  EXPECT_EQ(sum.item<float>(), 2);
}

TEST_F(SimulatedStreams, RandomDelaysShowAMissingEvent) {
  configure([](auto& settings) {
    settings.seed = 1;
    settings.random_delay_us = 2000;
  });
  int wrong = 0;
  for (int round = 0; round < 50; ++round) {
    const at::Tensor number = at::ones({1}, device());
    impl().synchronizeDevice(0);
    {
      const c10::StreamGuard guard(impl().getStreamFromGlobalPool(device()));
      number.fill_(21);
    }
    if (number.item<float>() != 21) ++wrong;
    impl().synchronizeDevice(0);
  }
  EXPECT_GT(wrong, 5);
}

TEST_F(SimulatedStreams, EventsAreReachedInOrderAndHaveTimes) {
  c10::Event first(c10::DeviceType::PrivateUse1, c10::EventFlag::BACKEND_DEFAULT);
  c10::Event second(c10::DeviceType::PrivateUse1, c10::EventFlag::BACKEND_DEFAULT);
  EXPECT_TRUE(first.query()) << "never recorded";
  const c10::Stream stream = impl().getStream(device());
  first.record(stream);
  library().run_kernel(0, 100000);
  second.record(stream);
  first.synchronize();
  EXPECT_TRUE(first.query());
  EXPECT_FALSE(second.query());
  EXPECT_FALSE(stream.query());
  second.synchronize();
  EXPECT_TRUE(second.query());
  EXPECT_TRUE(stream.query());
  EXPECT_GE(first.elapsedTime(second), 100);
  EXPECT_LT(first.elapsedTime(second), 1000);
}

TEST_F(SimulatedStreams, RunWithoutAHostThatWaits) {
  const at::Tensor host = at::empty({1}, at::TensorOptions().pinned_memory(true));
  host.copy_(at::full({1}, 3, device()), true);
  const c10::Stream stream = impl().getStream(device());
  for (const auto start = steady_clock::now(); !stream.query() && milliseconds_since(start) < 10000;)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(host.item<float>(), 3);
}

TEST_F(SimulatedStreams, RunSideBySide) {
  const auto start = steady_clock::now();
  for (int index = 0; index < 4; ++index) {
    const c10::StreamGuard guard(impl().getStreamFromGlobalPool(device()));
    library().run_kernel(0, 100000);
  }
  EXPECT_LT(milliseconds_since(start), 90) << "the host waited";
  impl().synchronizeDevice(0);
  EXPECT_GE(milliseconds_since(start), 100);
  EXPECT_LT(milliseconds_since(start), 300);
}

TEST_F(SimulatedStreams, CurrentOnesBelongToAThread) {
  const c10::Stream side = impl().getNewStream(device(1));
  const c10::StreamGuard guard(side);
  EXPECT_EQ(impl().getStream(device(1)), side);
  EXPECT_EQ(impl().getStream(device(0)).id(), 0);
  std::thread([] {
    EXPECT_EQ(impl().getStream(device(1)).id(), 0);
    EXPECT_EQ(impl().getDevice(), device(0));
  }).join();
}

TEST_F(SimulatedStreams, EventsOrderDevices) {
  c10::Event first(c10::DeviceType::PrivateUse1), second(c10::DeviceType::PrivateUse1);
  library().run_kernel(0, 100000);
  first.record(impl().getStream(device(0)));
  first.block(impl().getStream(device(1)));
  second.record(impl().getStream(device(1)));
  EXPECT_FALSE(second.query());
  impl().synchronizeDevice(1);
  EXPECT_TRUE(first.query());
  EXPECT_TRUE(second.query());
}

}  // namespace streams_test
}  // namespace simulated_device::tests
