// SPDX-License-Identifier: Apache-2.0
// Which backend sends the tensors of which device. Each test is a process of its own, because a device stays
// registered.
#include "comm/backend/backend_names.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "base/error.hpp"
#include "comm/backend/backend_communicator.hpp"
#include "engine/own_process.hpp"
#include "rank_threads.hpp"
#include "tensor/device/device_plugins.hpp"

namespace accel::comm {
namespace backend_names_test {

using tests::in_own_process;
using CommunicatorPtr = std::shared_ptr<Communicator>;

std::string backend_of(const CommunicatorPtr& communicator, c10::DeviceType device) {
  return dynamic_cast<const BackendCommunicator&>(*communicator).backend_of(device)->getBackendName();
}

TEST(BackendNames, AreThoseOfTheDevice) {
  EXPECT_EQ(choose_backends(c10::DeviceType::CPU), "ucx");
  EXPECT_EQ(choose_backends(c10::DeviceType::CUDA), "cuda:nccl,cpu:ucx");
  EXPECT_EQ(choose_backends(c10::DeviceType::XPU), "cpu:ucx,xpu:staged");
  EXPECT_EQ(staged_devices("cuda:nccl,cpu:ucx"), "");
  EXPECT_EQ(staged_devices("cpu:ucx,xpu:staged"), "xpu");
  const auto parsed = parse_backend_names("ucx");
  ASSERT_EQ(parsed.size(), 1U);
  EXPECT_EQ(parsed[0].device, c10::DeviceType::CPU);
  EXPECT_EQ(parsed[0].name, "ucx");
}

TEST(BackendNames, GivenOnesReplaceThoseOfTheirDevices) {
  EXPECT_EQ(choose_backends(c10::DeviceType::CPU, "ucx"), "ucx");
  EXPECT_EQ(choose_backends(c10::DeviceType::CPU, "cpu:ucx"), "ucx");
  EXPECT_EQ(choose_backends(c10::DeviceType::CUDA, "cuda:staged"), "cpu:ucx,cuda:staged");
  EXPECT_EQ(choose_backends(c10::DeviceType::CUDA, "staged"), "cpu:ucx,cuda:staged");
  EXPECT_EQ(choose_backends(c10::DeviceType::CUDA, "nccl,cpu:ucx"), "cuda:nccl,cpu:ucx");
  EXPECT_EQ(choose_backends(c10::DeviceType::XPU, "cpu:null"), "cpu:null,xpu:staged");
}

// Regression: `backend` took names of no plugin, and two for one device, as long as there was one rank.
TEST(BackendNames, ThatCannotBeMeantAreRefused) {
  const auto error_of = [](c10::DeviceType device, const char* given) -> std::string {
    try {
      choose_backends(device, given);
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kInvalidArgument);
      return error.message();
    }
    return "none";
  };
  EXPECT_EQ(error_of(c10::DeviceType::CPU, "cuda:staged"),
            "backend has 'cuda:staged' and the state computes on cpu; expected backends of cpu");
  EXPECT_EQ(error_of(c10::DeviceType::CPU, "staged"),
            "backend has 'staged', and 'staged' does not send tensors of cpu; expected ucx, or "
            "the NAME of a plugin libaccel_NAME.so in ACCEL_PLUGIN_PATH");
  EXPECT_EQ(error_of(c10::DeviceType::XPU, "nccl"),
            "backend has 'nccl', and 'nccl' does not send tensors of xpu; expected staged, or "
            "the NAME of a plugin libaccel_NAME.so in ACCEL_PLUGIN_PATH");
  EXPECT_EQ(error_of(c10::DeviceType::CUDA, "cuda:"),
            "backend has 'cuda:', and '' does not send tensors of cuda; expected nccl or staged, or "
            "the NAME of a plugin libaccel_NAME.so in ACCEL_PLUGIN_PATH");
  EXPECT_EQ(error_of(c10::DeviceType::CUDA, "cuda:staged,nccl"),
            "backend has 'nccl' and another backend of cuda before it; expected one for each device");
  for (const char* name : {"cuda", "gloo", "cpu:../ucx", "cpu:0:ucx", "UCX", "ucx ", "cpu:/ucx"})
    EXPECT_NE(error_of(c10::DeviceType::CPU, name).find("does not send tensors of cpu; expected ucx"),
              std::string::npos)
        << name;
  EXPECT_EQ(error_of(c10::DeviceType::XPU, "accelerator"),
            "backend has 'accelerator', and the plugin of xpu has no collectives of its own; expected staged");
}

// Regression: the process group had one backend for tensors of all devices: the first.
TEST(BackendNames, ADeviceWithoutCollectivesIsStaged) {
  in_own_process([] {
    tensor::load_device_plugins(std::getenv("SIMULATED_DEVICE_LIBRARY"), "the test");
    const std::string names = choose_backends(tensor::kOutOfTreeType);
    EXPECT_EQ(names, "cpu:ucx,sim:staged");
    const auto check = [](const CommunicatorPtr& communicator) {
      EXPECT_EQ(backend_of(communicator, tensor::kOutOfTreeType), "staged");
      EXPECT_EQ(backend_of(communicator, c10::DeviceType::CPU), "ucx");
    };
    tests::run_ranks(2, check, std::chrono::seconds(60), names);
  });
}

TEST(BackendNames, APluginMayHaveCollectivesOfItsDevice) {
  in_own_process([] {
    tensor::load_device_plugins(ACCEL_TEST_PLUGIN, "the test");
    const std::string names = choose_backends(tensor::kOutOfTreeType);
    EXPECT_EQ(names, "cpu:ucx,vendor:accelerator");
    EXPECT_EQ(choose_backends(c10::DeviceType::XPU), "cpu:ucx,xpu:staged");
    const auto check = [](const CommunicatorPtr& communicator) {
      EXPECT_EQ(backend_of(communicator, tensor::kOutOfTreeType), "stub");
      EXPECT_EQ(backend_of(communicator, c10::DeviceType::CPU), "ucx");
    };
    tests::run_ranks(2, check, std::chrono::seconds(60), names);
  });
}

}  // namespace backend_names_test
}  // namespace accel::comm
