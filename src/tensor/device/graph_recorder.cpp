// SPDX-License-Identifier: Apache-2.0
#include "tensor/device/graph_recorder.hpp"

#include <array>
#include <exception>
#include <mutex>

#include "base/error.hpp"
#include "base/torch_compat.hpp"
#include "os/plugin_file.hpp"

#if ACCEL_TORCH_HAS_GRAPHS
#include <ATen/core/GraphImplInterface.h>
#endif

namespace accel::tensor {
namespace {

#if ACCEL_TORCH_HAS_GRAPHS
class RecorderOfTorch final : public GraphRecorder {
 public:
  explicit RecorderOfTorch(c10::DeviceType type) : graph_(at::create_graph_impl(type)) {}

  void begin() override { graph_->capture_begin({0, 0}, at::GraphCaptureMode::ThreadLocal); }
  void end() override {
    graph_->capture_end();
    graph_->instantiate();
  }
  // The error has ended the recording, or not.
  void give_up() noexcept override {
    try {
      graph_->capture_end();
    } catch (const std::exception&) {  // the device says again what is known
    }
    graph_->reset();
  }
  void replay() override { graph_->replay(); }

 private:
  std::unique_ptr<at::GraphImplInterface> graph_;
};

// Null if LibTorch has none.
std::unique_ptr<GraphRecorder> recorder_of_torch(c10::DeviceType type) {
  return at::has_graph_impl(type) ? std::make_unique<RecorderOfTorch>(type) : nullptr;
}
bool torch_has_graphs(c10::DeviceType type) { return at::has_graph_impl(type); }
#else
std::unique_ptr<GraphRecorder> recorder_of_torch(c10::DeviceType) { return nullptr; }
bool torch_has_graphs(c10::DeviceType) { return false; }
#endif

// "KIND_graphs"
std::string plugin_name(c10::DeviceType type) { return c10::DeviceTypeName(type, /*lower_case=*/true) + "_graphs"; }

// Null if the plugin is not there.
CreateGraphRecorder plugin_of(c10::DeviceType type) {
  static std::mutex mutex;
  static std::array<CreateGraphRecorder, c10::COMPILE_TIME_MAX_DEVICE_TYPES> loaded{};
  const std::lock_guard<std::mutex> lock(mutex);
  CreateGraphRecorder& known = loaded.at(static_cast<size_t>(type));
  if (known != nullptr) return known;
  const auto path = plugin_path(plugin_name(type));
  if (!path) return nullptr;
  known =
      reinterpret_cast<CreateGraphRecorder>(plugin_symbol(load_plugin_file(*path), *path, kCreateGraphRecorderSymbol));
  return known;
}

bool needs_no_graphs(c10::DeviceType type) { return type == c10::DeviceType::CPU || type == c10::DeviceType::Meta; }

}  // namespace

std::string recording_obstacle(c10::DeviceType type) {
  if (needs_no_graphs(type)) return "it is no accelerator";
  if (torch_has_graphs(type) || plugin_of(type) != nullptr) return "";
  return "LibTorch has none for it, and " + missing_plugin(plugin_name(type));
}

std::unique_ptr<GraphRecorder> new_graph_recorder(c10::Device device) {
  const std::string obstacle = recording_obstacle(device.type());
  require(obstacle.empty(), Status::kUnsupported, "device ", device.str(), " has no graphs: ", obstacle);
  if (auto recorder = recorder_of_torch(device.type())) return recorder;
  auto recorder = std::unique_ptr<GraphRecorder>(plugin_of(device.type())());
  require(recorder != nullptr, Status::kOutOfMemory, "no memory for a graph of device ", device.str());
  return recorder;
}

}  // namespace accel::tensor
