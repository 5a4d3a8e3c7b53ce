// SPDX-License-Identifier: Apache-2.0
// Failures on demand: each is an error of one call, and what follows works.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <c10/core/Event.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>

#include "simulated_device_fixture.hpp"

namespace simulated_device::tests {
namespace faults_test {

using SimulatedFaults = SimulatedDeviceTest;

template <typename Call>
void expect_error(const std::string& part, Call&& call) {
  try {
    call();
    ADD_FAILURE() << "no error; expected one with: " << part;
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what_without_backtrace()).find(part), std::string::npos)
        << error.what_without_backtrace();
  }
}

TEST_F(SimulatedFaults, TheNthAllocationFails) {
  library().fail_allocation(0, 3);
  at::ones({4}, device(1));
  at::empty({4}, device());
  at::empty({4}, device());
  EXPECT_THROW(at::empty({4}, device()), c10::OutOfMemoryError);
  EXPECT_NO_THROW(at::empty({4}, device()));
  library().fail_allocation(-1, 1);
  EXPECT_THROW(at::empty({4}, device(2)), c10::OutOfMemoryError);
  EXPECT_NO_THROW(at::empty({4}, device(2)));
}

TEST_F(SimulatedFaults, TheNthCopyFails) {
  const at::Tensor tensor = at::ones({4}, device());
  library().fail_copy(0, 2);
  EXPECT_NO_THROW(tensor.cpu());
  expect_error("a copy of sim:0 failed", [&] { tensor.cpu(); });
  EXPECT_NO_THROW(tensor.cpu());
}

TEST_F(SimulatedFaults, AnOperatorWithoutMemoryLeavesItsInputs) {
  at::Tensor tensor = at::ones({4, 4}, device());
  library().fail_allocation(0, 1);
  EXPECT_THROW(at::matmul(tensor, tensor), c10::OutOfMemoryError);
  EXPECT_TRUE(at::matmul(tensor, tensor).cpu().eq(4).all().item<bool>());
}

TEST_F(SimulatedFaults, ALostDeviceRefusesEverything) {
  const at::Tensor tensor = at::ones({4}, device(1)), other = at::ones({4}, device(0));
  at::Tensor freed = at::ones({4}, device(1));
  library().lose(1);
  const std::string lost = "device sim:1 is lost";
  expect_error(lost, [&] { tensor.add(1); });
  expect_error(lost, [&] { tensor.cpu(); });
  expect_error(lost, [&] { tensor[0].item<float>(); });
  expect_error(lost, [&] { other.to(device(1)); });
  expect_error(lost, [&] { at::empty({4}, device(1)); });
  expect_error(lost, [&] { impl().synchronizeDevice(1); });
  freed = at::Tensor();
  EXPECT_EQ(other.add(1).sum().item<float>(), 8) << "the other devices work";
  library().restore();
  EXPECT_EQ(at::ones({4}, device(1)).sum().item<float>(), 4);
}

TEST_F(SimulatedFaults, ADeviceCanBeLostInBackward) {
  at::Tensor weight = at::ones({4, 4}, device(1));
  weight.requires_grad_(true);
  const at::Tensor product = weight.mul(2);
  product.register_hook([](const at::Tensor& gradient) {
    library().lose(1);
    return gradient;
  });
  const at::Tensor loss = product.sum();
  expect_error("device sim:1 is lost", [&] { loss.backward(); });
  library().restore();
  at::Tensor again = at::ones({4, 4}, device(1));
  again.requires_grad_(true).mul(2).sum().backward();
  EXPECT_TRUE(again.grad().cpu().eq(2).all().item<bool>());
}

TEST_F(SimulatedFaults, WhatWaitsForALostDeviceEnds) {
  const at::Tensor there = at::full({4}, 2, device(1));
  at::Tensor back = at::empty({4}, at::TensorOptions().pinned_memory(true));
  impl().synchronizeDevice(1);
  library().run_kernel(1, 100000);
  back.copy_(there, true);
  c10::Event event(c10::DeviceType::PrivateUse1);
  event.record(impl().getStream(device(1)));
  library().lose(1);
  event.block(impl().getStream(device(0)));
  expect_error("device sim:1 is lost", [&] { event.synchronize(); });
  impl().synchronizeDevice(0);
  EXPECT_FALSE(back.eq(2).any().item<bool>()) << "the copy has not run";
}

TEST_F(SimulatedFaults, WrongUsesAreErrors) {
  expect_error("there is no device sim:7; devices 0 to 3 exist", [&] { at::ones({4}, device(7)); });
  simulated_device_settings settings;
  library().get_settings(&settings);
  settings.device_count = 9;
  EXPECT_STREQ(library().configure(&settings), "there are 1 to 8 simulated devices, not 9");
}

// Ends the process, which was started with the variables of the test.
[[noreturn]] void exit_after_reading_variables(c10::Device last, c10::Device before) {
  const at::Tensor tensor = at::ones({4}, last), other = at::ones({4}, before);
  expect_error("npu out of memory. Tried to allocate 16 bytes. Device npu:7", [&] { at::ones({4}, last); });
  expect_error("a copy of npu:6 failed", [&] { other.cpu(); });
  expect_error("of which 1023.50 KiB is free", [&] { at::ones({1 << 20}, last); });
  std::exit(testing::Test::HasFailure() ? 1 : 0);
}

TEST_F(SimulatedFaults, VariablesAreReadAtTheStart) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const std::map<std::string, std::string> variables = {{"SIMULATED_DEVICE_NAME", "npu"},
                                                        {"SIMULATED_DEVICE_COUNT", "8"},
                                                        {"SIMULATED_DEVICE_MEMORY", "1048576"},
                                                        {"SIMULATED_DEVICE_FAIL_ALLOCATION", "7:2"},
                                                        {"SIMULATED_DEVICE_FAIL_COPY", "6:1"}};
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  EXPECT_EXIT(exit_after_reading_variables(device(7), device(6)), testing::ExitedWithCode(0), "");
  for (const auto& variable : variables) unsetenv(variable.first.c_str());
}

TEST_F(SimulatedFaults, TheProcessEndsCleanlyWhileStreamsHaveWork) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        static const at::Tensor freed_at_exit = at::ones({4}, device());
        library().run_kernel(0, 50000);
        at::ones({4}, at::TensorOptions().pinned_memory(true)).to(device(), true).add_(1);
        library().run_kernel(1, 50000);
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(SimulatedFaults, AForkedProcessEndsCleanlyAndCannotUseTheDevice) {
  const at::Tensor tensor = at::ones({4}, device());
  const pid_t child = fork();
  if (child == 0) {
    int result = 1;
    try {
      tensor.add(1);
    } catch (const c10::Error&) {
      result = 0;
    }
    setenv("TORCH_AUTOGRAD_SHUTDOWN_WAIT_LIMIT", "0",
           1);  // how long LibTorch waits for threads, which this process lacks
    std::exit(result);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(tensor.add(1).sum().item<float>(), 8);
}

}  // namespace faults_test
}  // namespace simulated_device::tests
