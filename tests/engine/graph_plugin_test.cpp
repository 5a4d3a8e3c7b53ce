// Plugins of graphs: which devices can record and why others cannot; on a machine without a GPU the plugin for CUDA is
// loaded, and says what is missing when it is asked to record.
#include <gtest/gtest.h>

#include <string>

#include "base/error.hpp"
#include "expect_error.hpp"
#include "os/plugin_file.hpp"
#include "tensor/device/device_availability.hpp"
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

}  // namespace graph_plugin_test
}  // namespace accel::tensor
