// Ranks as threads, each on its simulated device, whose collectives are staged; what they compute equals the CPU's.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <c10/core/DeviceGuard.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "rank_threads.hpp"
#include "simulated_device/simulated_device_fixture.hpp"

namespace accel::tests {

using Tensors = std::vector<at::Tensor>;
using CommunicatorPtr = std::shared_ptr<comm::Communicator>;

class StagedRanks : public simulated_device::tests::SimulatedDeviceTest {
 protected:
  StagedRanks() {
    configure([](auto& settings) {
      settings.seed = 11;
      settings.random_delay_us = 200;
    });
  }

  // On the CPU or on a device for each rank.
  static void run_ranks(int size, bool on_cpu,
                        const std::function<void(const CommunicatorPtr&, c10::Device place)>& body) {
    tests::run_ranks(
        size,
        [&](const CommunicatorPtr& communicator) {
          const c10::DeviceGuard guard(device(communicator->rank()));
          body(communicator, on_cpu ? c10::Device(c10::DeviceType::CPU) : device(communicator->rank()));
        },
        std::chrono::seconds(60), "cpu:ucx,sim:staged");
  }

  // What `train` returns on each rank, which must be the same on the devices as on the CPU.
  static void expect_equal(int size, const std::function<Tensors(const CommunicatorPtr&, c10::Device place)>& train) {
    std::map<std::pair<bool, int>, Tensors> results;
    std::mutex mutex;
    for (const bool on_cpu : {true, false})
      run_ranks(size, on_cpu, [&](const CommunicatorPtr& communicator, c10::Device place) {
        Tensors own;
        for (const at::Tensor& result : train(communicator, place)) own.push_back(result.detach().cpu().clone());
        const std::lock_guard<std::mutex> lock(mutex);
        results[{on_cpu, communicator->rank()}] = own;
      });
    for (int rank = 0; rank < size; rank++) {
      const Tensors &expected = results[{true, rank}], &got = results[{false, rank}];
      ASSERT_EQ(got.size(), expected.size());
      for (size_t i = 0; i < got.size(); i++)
        EXPECT_TRUE(at::equal(got[i], expected[i])) << "tensor " << i << " of rank " << rank << " of " << size
                                                    << ", off by " << (got[i] - expected[i]).abs().max().item<double>();
    }
  }
};

}  // namespace accel::tests
