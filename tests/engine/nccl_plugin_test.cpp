// SPDX-License-Identifier: Apache-2.0
// The NCCL plugin: on a machine without a GPU it says what is missing, with one it reduces.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "base/error.hpp"
#include "comm/backend/backend_plugin.hpp"
#include "comm/backend/plugin.hpp"
#include "os/plugin_file.hpp"
#include "tensor/device/device.hpp"
#include "tensor/device/device_availability.hpp"

namespace accel::comm {
namespace nccl_plugin_test {

bool has_gpu() { return tensor::device_count(tensor::DeviceKind::kCuda) > 0; }

c10::intrusive_ptr<c10d::Backend> make_alone(std::string& error) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  char reason[512] = "";
  const BackendArguments arguments{store.get(), 0, 1, 20000, "test"};
  auto* const backend = load_plugin("nccl")(&arguments, reason, sizeof(reason));
  error = reason;
  return c10::intrusive_ptr<c10d::Backend>::reclaim(backend);
}

TEST(NcclPlugin, SaysThatItWasNotBuilt) {
  if (plugin_path("nccl")) GTEST_SKIP() << "it was built";
  try {
    load_plugin("nccl");
    FAIL() << "there is no plugin";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kUnsupported);
    EXPECT_NE(error.message().find("libaccel_nccl.so is in none of"), std::string::npos) << error.message();
  }
}

TEST(NcclPlugin, SaysThatThereIsNoGpu) {
  if (!plugin_path("nccl") || has_gpu()) GTEST_SKIP() << "needs the plugin and no GPU";
  std::string error;
  EXPECT_FALSE(make_alone(error));
  EXPECT_NE(error.find("no CUDA device"), std::string::npos) << error;
}

TEST(NcclPlugin, ReducesOnTheGpu) {
  if (!plugin_path("nccl") || !has_gpu()) GTEST_SKIP() << "needs the plugin and a GPU";
  std::string error;
  const auto backend = make_alone(error);
  ASSERT_TRUE(backend) << error;
  std::vector<at::Tensor> tensors{at::arange(1000, at::TensorOptions().device(at::kCUDA).dtype(at::kFloat))};
  backend->allreduce(tensors, c10d::AllreduceOptions())->wait();
  EXPECT_TRUE(tensors[0].cpu().equal(at::arange(1000, at::kFloat)));
}

}  // namespace nccl_plugin_test
}  // namespace accel::comm
