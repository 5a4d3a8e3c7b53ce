// SPDX-License-Identifier: Apache-2.0
// Copies: blocking ones and those for which the host does not wait, conversions, and between devices.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "simulated_device_fixture.hpp"

namespace simulated_device::tests {
namespace copies_test {

using std::chrono::steady_clock;

class SimulatedCopies : public SimulatedDeviceTest {
 protected:
  static at::Tensor pinned(at::Tensor tensor) { return tensor.pin_memory(); }
  static double milliseconds_of(const std::function<void()>& work) {
    const auto start = steady_clock::now();
    work();
    return std::chrono::duration<double, std::milli>(steady_clock::now() - start).count();
  }
};

TEST_F(SimulatedCopies, PinnedMemoryIsKnown) {
  const at::Tensor pageable = at::ones({4}), pinned_one = pinned(pageable);
  EXPECT_FALSE(pageable.is_pinned());
  EXPECT_TRUE(pinned_one.is_pinned());
  EXPECT_TRUE(pinned_one.slice(0, 2).is_pinned());
  EXPECT_TRUE(at::empty({2}, at::TensorOptions().pinned_memory(true)).is_pinned());
  EXPECT_TRUE(pinned_one.equal(pageable));
  EXPECT_THROW(at::empty({2}, at::TensorOptions().device(device()).pinned_memory(true)), c10::Error);
}

TEST_F(SimulatedCopies, PinnedMemoryIsCounted) {
  library().reset_peak_pinned();
  const int64_t before = statistics().pinned_bytes;
  EXPECT_EQ(statistics().peak_pinned_bytes, before);
  {
    const at::Tensor one = pinned(at::ones({1000}));
    EXPECT_EQ(statistics(1).pinned_bytes, before + 4000);
  }
  EXPECT_EQ(statistics().pinned_bytes, before);
  EXPECT_EQ(statistics().peak_pinned_bytes, before + 4000);
}

TEST_F(SimulatedCopies, ThereAndBackInEveryLayout) {
  const at::Tensor host = at::randn({3, 4, 5});
  for (const at::Tensor& tensor : {host, host.transpose(0, 2), host.slice(1, 0, 4, 2), host[1], host.to(at::kHalf),
                                   host.to(at::kComplexFloat), at::empty({0}), at::full({}, 3)}) {
    EXPECT_TRUE(tensor.to(device()).cpu().equal(tensor));
    EXPECT_EQ(tensor.to(device()).strides(), tensor.to(at::kCPU, tensor.scalar_type(), false, true).strides());
  }
  EXPECT_TRUE(host.to(device(), at::kBFloat16).cpu().equal(host.to(at::kBFloat16)));
  EXPECT_TRUE(host.to(device()).to(at::kDouble).cpu().equal(host.to(at::kDouble)));
  EXPECT_TRUE(host.to(device()).to(at::kCPU, at::kHalf).equal(host.to(at::kHalf)));
  const at::Tensor complex = at::randn({3, 4}, at::kComplexFloat);
  EXPECT_TRUE(complex.to(device()).conj().cpu().equal(complex.conj()));
  EXPECT_TRUE(complex.conj().to(device()).resolve_conj().cpu().equal(complex.conj().resolve_conj()));
  at::Tensor columns = at::empty({4, 3}, device()).t();
  columns.copy_(at::arange(4, at::kFloat));
  EXPECT_TRUE(columns.cpu().equal(at::arange(4, at::kFloat).expand({3, 4})));
}

TEST_F(SimulatedCopies, TheHostWaitsOnlyForBlockingOnes) {
  configure([](auto& settings) { settings.copy_delay_us = 100000; });
  const at::Tensor pinned_one = pinned(at::ones({4})), pageable = at::ones({4});
  at::Tensor there = at::empty({4}, device());
  EXPECT_LT(milliseconds_of([&] { there.copy_(pinned_one, true); }), 80);
  impl().synchronizeDevice(0);
  EXPECT_GE(milliseconds_of([&] { there.copy_(pinned_one); }), 100);
  EXPECT_GE(milliseconds_of([&] { there.copy_(pageable, true); }), 100) << "memory that is not pinned is read at once";
  at::Tensor back = at::empty({4});
  EXPECT_LT(milliseconds_of([&] { back.copy_(there, true); }), 80);
  impl().synchronizeDevice(0);
  EXPECT_GE(milliseconds_of([&] { back.copy_(there); }), 100);
}

TEST_F(SimulatedCopies, WhatIsReadTooEarlyHasNoValue) {
  const at::Tensor there = at::full({4}, 2, device());
  at::Tensor back = pinned(at::ones({4}));
  impl().synchronizeDevice(0);
  library().run_kernel(0, 100000);
  back.copy_(there, true);
  EXPECT_TRUE(at::isnan(back).all().item<bool>());
  impl().synchronizeDevice(0);
  EXPECT_TRUE(back.eq(2).all().item<bool>());
}

TEST_F(SimulatedCopies, PinnedMemoryThatChangesTooEarlyIsCopiedChanged) {
  const at::Tensor source = pinned(at::ones({4}));
  at::Tensor there = at::empty({4}, device());
  impl().synchronizeDevice(0);
  library().run_kernel(0, 100000);
  there.copy_(source, true);
  source.fill_(9);
  EXPECT_TRUE(there.cpu().eq(9).all().item<bool>());
}

TEST_F(SimulatedCopies, PinnedMemoryLivesUntilItsCopiesHaveEnded) {
  at::Tensor there = at::empty({4}, device());
  impl().synchronizeDevice(0);
  library().run_kernel(0, 100000);
  there.copy_(pinned(at::ones({4})), true);
  EXPECT_TRUE(there.cpu().eq(1).all().item<bool>());
}

TEST_F(SimulatedCopies, BetweenDevices) {
  const at::Tensor host = at::randn({4, 5});
  const at::Tensor first = host.to(device(0));
  library().run_kernel(0, 2000);
  const at::Tensor second = first.to(device(1)), third = second.t().to(device(3), at::kDouble);
  EXPECT_EQ(second.device(), device(1));
  EXPECT_TRUE(second.cpu().equal(host));
  EXPECT_TRUE(third.cpu().equal(host.t().to(at::kDouble)));
}

TEST_F(SimulatedCopies, OneAheadOverlapsWithWork) {
  configure([](auto& settings) { settings.copy_delay_us = 20000; });
  const at::Tensor source = pinned(at::ones({4}));
  const c10::Stream side = impl().getStreamFromGlobalPool(device());
  double shortest = 1e9;  // of several steps: what else the machine does can only add to it
  for (int step = 0; step < 10; ++step) {
    shortest = std::min(shortest, milliseconds_of([&] {
                          library().run_kernel(0, 20000);
                          {
                            const c10::StreamGuard guard(side);
                            at::empty({4}, device()).copy_(source, true);
                          }
                          impl().synchronizeDevice(0);
                        }));
  }
  EXPECT_GE(shortest, 20);
  EXPECT_LT(shortest, 30) << "a copy and a kernel of 20 ms each do not run side by side";
}

}  // namespace copies_test
}  // namespace simulated_device::tests
