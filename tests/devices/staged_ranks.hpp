// SPDX-License-Identifier: Apache-2.0
// Ranks as threads, each on its device, whose collectives are staged, or have the works of other_works.hpp; what they
// compute equals the CPU's.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DeviceGuard.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "device_fixture.hpp"
#include "rank_threads.hpp"
#include "tolerances.hpp"

namespace accel::tests {

using Tensors = std::vector<at::Tensor>;
using CommunicatorPtr = std::shared_ptr<comm::Communicator>;

class StagedRanks : public DeviceTest {
 protected:
  using Train = std::function<Tensors(const CommunicatorPtr&, c10::Device place)>;
  using Backends = std::vector<std::string>;

  StagedRanks() : DeviceTest(LateStreams{11, 200}) {}

  // Those for which it matters what a backend's works are.
  static Backends with_every_work() { return {"staged", "null", "stream"}; }

  // On the CPU or on a device for each rank.
  static void run_ranks(int size, bool on_cpu,
                        const std::function<void(const CommunicatorPtr&, c10::Device place)>& body,
                        const std::string& backend = "staged") {
    tests::run_ranks(
        size,
        [&](const CommunicatorPtr& communicator) {
          const c10::DeviceGuard guard(device(communicator->rank()));
          // LibTorch has one thread for the backwards of a device: that of one rank would wait there for another's,
          // which it holds up. Ranks that share a device run theirs themselves.
          if (device_count() < size) c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
          body(communicator, on_cpu ? c10::Device(c10::DeviceType::CPU) : device(communicator->rank()));
        },
        std::chrono::seconds(60), backends(backend));
  }

  // What `train` returns on each rank, which must be the same on the devices as on the CPU: within the tolerance of the
  // dtype that it computes in, or bit for bit where the kernels are the CPU's.
  static void expect_equal(int size, const Train& train, const Backends& backends = {"staged"},
                           c10::ScalarType computed_in = at::kFloat) {
    const auto results_of = [&](bool on_cpu, const std::string& backend) {
      std::map<int, Tensors> results;
      std::mutex mutex;
      const auto body = [&](const CommunicatorPtr& communicator, c10::Device place) {
        Tensors own;
        for (const at::Tensor& result : train(communicator, place)) own.push_back(result.detach().cpu().clone());
        const std::lock_guard<std::mutex> lock(mutex);
        results[communicator->rank()] = own;
      };
      run_ranks(size, on_cpu, body, backend);
      return results;
    };
    const std::map<int, Tensors> of_cpu = results_of(true, "staged");
    for (const std::string& backend : backends) {
      const std::map<int, Tensors> of_device = results_of(false, backend);
      for (const auto& [rank, expected] : of_cpu) {
        const Tensors& got = of_device.at(rank);
        ASSERT_EQ(got.size(), expected.size());
        for (size_t i = 0; i < got.size(); i++)
          EXPECT_LE(difference(got[i], expected[i]), device_tolerance(computed_in))
              << "tensor " << i << " of rank " << rank << " of " << size << ", backend " << backend;
      }
    }
  }
};

}  // namespace accel::tests
