// SPDX-License-Identifier: Apache-2.0
// Plugins of graphs: which devices can record and why others cannot; on a machine without a GPU the plugin for CUDA is
// loaded, and says what is missing when it is asked to record.
#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.hpp"
#include "expect_error.hpp"
#include "os/plugin_file.hpp"
#include "tensor/device/device_availability.hpp"
#include "tensor/device/device_graph.hpp"
#include "tensor/device/graph_recorder.hpp"

namespace accel::tensor {
namespace graph_plugin_test {

bool is_built() { return plugin_path("cuda_graphs").has_value(); }

TEST(GraphPlugin, TheHostRecordsNothing) {
  EXPECT_EQ(recording_obstacle(c10::DeviceType::CPU), "it is no accelerator");
  tests::expect_error(Status::kUnsupported, "device cpu has no graphs: it is no accelerator",
                      [] { new_graph_recorder(c10::Device(c10::DeviceType::CPU)); });
}

TEST(GraphPlugin, SaysThatItWasNotBuilt) {
  if (is_built()) GTEST_SKIP() << "it was built";
  const std::string expected = "the plugin libaccel_cuda_graphs.so is in none of";
  EXPECT_NE(recording_obstacle(c10::DeviceType::CUDA).find(expected), std::string::npos);
  tests::expect_error(Status::kUnsupported, expected,
                      [] { new_graph_recorder(c10::Device(c10::DeviceType::CUDA, 0)); });
}

TEST(GraphPlugin, FailsWithoutAGpuAndCanBeGivenUp) {
  if (!is_built() || device_count(DeviceKind::kCuda) > 0) GTEST_SKIP() << "needs the plugin and no GPU";
  EXPECT_EQ(recording_obstacle(c10::DeviceType::CUDA), "");
  for (int time = 0; time < 2; time++) {
    const auto recorder = new_graph_recorder(c10::Device(c10::DeviceType::CUDA, 0));
    EXPECT_NE(tests::message_of([&] { recorder->begin(); }), "no error");
  }
}

// What was drawn at random, and what was refused, leaves the device as a step without a recording does.
TEST(GraphPlugin, RecordsOnTheGpu) {
  if (!is_built() || device_count(DeviceKind::kCuda) == 0) GTEST_SKIP() << "needs the plugin and a GPU";
  const c10::Device device(c10::DeviceType::CUDA, 0);
  const auto on_device = at::TensorOptions().device(device).dtype(at::kFloat);
  const auto generator = at::globalContext().defaultGenerator(device);
  const at::Tensor sum = at::zeros({100}, on_device);
  const auto draw = [&] { sum.add_(at::rand({100}, on_device)); };
  const auto seed = [&] { at::Generator(generator).set_current_seed(7); };
  seed();
  for (int time = 0; time < 3; time++) draw();
  const at::Tensor expected = sum.cpu();

  const c10::Stream stream = new_stream_behind_current(device);
  DeviceGraph refused(device);
  EXPECT_EQ(tests::message_of([&] {
              refused.capture(stream, [&] {
                draw();
                sum.sum().item<float>();
              });
            }).find("device cuda:0 cannot capture the operator"),
            0U);
  sum.zero_();
  seed();
  DeviceGraph graph(device);
  graph.capture(stream, draw);
  EXPECT_EQ(sum.sum().item<float>(), 0) << "a recording computes nothing";
  graph.replay();
  draw();
  graph.replay();
  EXPECT_TRUE(at::allclose(sum.cpu(), expected));
}

}  // namespace graph_plugin_test
}  // namespace accel::tensor
