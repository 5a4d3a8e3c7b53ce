// SPDX-License-Identifier: Apache-2.0
#include "graph.hpp"

#if __has_include(<ATen/core/GraphImplInterface.h>)
#include <ATen/core/Generator.h>
#include <ATen/core/GraphImplInterface.h>
#include <ATen/core/Tensor.h>

#include <memory>

#include "capture.hpp"
#include "device.hpp"
#include "generator.hpp"

namespace simulated_device {
namespace {

// While a graph is captured, work runs as always, because the host needs the sizes of its results; at the end memory
// and the generator are as they were, as on a device that has only recorded it.
class Graph final : public at::GraphImplInterface {
 public:
  explicit Graph(const at::GraphImplArgs&) {}
  ~Graph() override { reset(); }

  void capture_begin(at::MempoolId_t pool, at::GraphCaptureMode) override {
    TORCH_CHECK(!capture_, "the graph is captured already; expected reset() before another capture");
    device_ = current_device();
    Stream& stream = current_stream(device_);
    TORCH_CHECK(current_stream_id(device_) != 0, "a graph must be captured on a stream that is not the default one");
    require_no_capture(stream, "a capture in a capture");
    usable_device(device_).synchronize();
    before_ = usable_device(device_).memory().contents();
    generator_ = default_generator(device_).get_state();
    capture_ = std::make_unique<Capture>(pool.first);
    stream_ = &stream;
    stream.set_capture(capture_.get());
    count_captures_here(1);
  }

  void capture_end() override {
    TORCH_CHECK(stream_, "no capture has begun");
    stream_->set_capture(nullptr);
    count_captures_here(-1);
    stream_ = nullptr;
    SimulatedDevice& device = any_device(device_);
    device.synchronize();
    device.memory().restore(before_, capture_->pool());
    before_.clear();
    at::Generator generator = default_generator(device_);
    generator.set_state(generator_);
  }

  void instantiate() override {}
  void replay() override {
    TORCH_CHECK(capture_ && !stream_, "no graph is captured");
    usable_device(device_);
    capture_->replay(current_stream(device_));
  }
  void reset() override {
    if (stream_) capture_end();
    if (!capture_) return;
    any_device(device_).synchronize();
    any_device(device_).memory().release_pool(capture_->pool());
    capture_.reset();
  }
  at::MempoolId_t pool() const override { return {capture_ ? capture_->pool() : 0, 0}; }
  void enable_debug_mode() override {}
  void debug_dump(const std::string&) override { TORCH_CHECK_NOT_IMPLEMENTED(false, "graphs are not written"); }

 private:
  c10::DeviceIndex device_ = 0;
  Stream* stream_ = nullptr;  // that is recorded now
  std::unique_ptr<Capture> capture_;
  std::map<size_t, Memory::Contents> before_;
  at::Tensor generator_;
};

}  // namespace

void register_graphs() {
  at::GraphImplRegistry()->Register(
      c10::DeviceTypeName(kDeviceType, /*lower_case=*/false),
      [](const at::GraphImplArgs& arguments) { return std::make_unique<Graph>(arguments); });
}

}  // namespace simulated_device
#else
namespace simulated_device {

void register_graphs() {}

}  // namespace simulated_device
#endif
