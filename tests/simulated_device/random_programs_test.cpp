// SPDX-License-Identifier: Apache-2.0
// Random programs of operators, copies and events on several streams and devices, with random delays: if every step
// waits for the last use of what it touches, the result is that of the same program on the CPU, one step after another.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include <array>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "simulated_device_fixture.hpp"

namespace simulated_device::tests {
namespace random_programs_test {

constexpr int kDevices = 2, kStreams = 3, kTensors = 4, kSteps = 100;

struct Value {
  at::Tensor on_device, expected;
  std::shared_ptr<c10::Event> last_use;
};

class Program {
 public:
  Program(uint64_t seed, bool waits, const c10::impl::VirtualGuardImpl& impl)
      : random_(seed), waits_(waits), impl_(impl) {
    for (int device = 0; device < kDevices; ++device) {
      const c10::Device on(impl.type(), static_cast<c10::DeviceIndex>(device));
      for (int stream = 0; stream < kStreams; ++stream) streams_[device].push_back(impl.getStreamFromGlobalPool(on));
      for (int index = 0; index < kTensors; ++index)
        values_[device].push_back({at::full({8}, 1.f * index, on), at::full({8}, 1.f * index), nullptr});
      impl.synchronizeDevice(on.index());
    }
  }

  // Whether the program computes what it computes step by step.
  bool run() {
    for (int step = 0; step < kSteps; ++step) run_step();
    for (int device = 0; device < kDevices; ++device) impl_.synchronizeDevice(static_cast<c10::DeviceIndex>(device));
    for (const auto& values : values_)
      for (const Value& value : values) on_host_.emplace_back(value.on_device.cpu(), value.expected);
    for (const auto& [host, expected] : on_host_)
      if (!host.equal(expected)) return false;
    return true;
  }

 private:
  size_t pick(int count) { return static_cast<size_t>(random_() % static_cast<uint64_t>(count)); }

  void run_step() {
    const size_t device = pick(kDevices);
    const c10::Stream stream = streams_[device][pick(kStreams)];
    const c10::StreamGuard guard(stream);
    const int kind = static_cast<int>(pick(4));
    Value& from = values_[device][pick(kTensors)];
    Value& to = values_[kind == 3 ? pick(kDevices) : device][pick(kTensors)];
    for (const Value* const value : {&from, &to})
      if (waits_ && value->last_use) value->last_use->block(stream);
    const auto pinned = at::TensorOptions().dtype(at::kFloat).pinned_memory(true);
    if (kind == 0) {
      to.on_device.add_(from.on_device).remainder_(1000);
      to.expected.add_(from.expected).remainder_(1000);
    } else if (kind == 1) {
      const at::Tensor host = at::empty({8}, pinned);
      host.copy_(from.on_device.mul(2).sub(1), true);
      on_host_.emplace_back(host, from.expected.mul(2).sub(1));
    } else if (kind == 2) {
      const at::Tensor host = at::full({8}, static_cast<float>(pick(100)), pinned);
      to.on_device.copy_(host, true);
      to.expected.copy_(host);
    } else {  // also between devices
      to.on_device.copy_(from.on_device, true);
      to.expected.copy_(from.expected);
    }
    const auto use = std::make_shared<c10::Event>(impl_.type());
    use->record(stream);
    from.last_use = to.last_use = use;
  }

  std::mt19937_64 random_;
  const bool waits_;
  const c10::impl::VirtualGuardImpl impl_;
  std::array<std::vector<c10::Stream>, kDevices> streams_;
  std::array<std::vector<Value>, kDevices> values_;
  std::vector<std::pair<at::Tensor, at::Tensor>> on_host_;
};

class SimulatedPrograms : public SimulatedDeviceTest {
 protected:
  static int num_right(int count, bool waits) {
    int right = 0;
    for (int seed = 1; seed <= count; ++seed) {
      configure([seed](auto& settings) {
        settings.seed = static_cast<uint64_t>(seed);
        settings.random_delay_us = 500;
      });
      if (Program(static_cast<uint64_t>(seed), waits, impl()).run()) ++right;
    }
    return right;
  }
};

TEST_F(SimulatedPrograms, ThatWaitAreRight) { EXPECT_EQ(num_right(40, true), 40); }

// With the thread sanitizer they are more: data races, which it reports.
#ifndef __SANITIZE_THREAD__
TEST_F(SimulatedPrograms, ThatDoNotWaitAreWrong) { EXPECT_LE(num_right(10, false), 1); }
#endif

}  // namespace random_programs_test
}  // namespace simulated_device::tests
