#include "tensor/device/device_graph.hpp"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <exception>
#include <string>

#include "base/error.hpp"
#include "base/torch_compat.hpp"
#include "tensor/device/device_work.hpp"
#include "tensor/operators/failed_operator.hpp"

#if ACCEL_TORCH_HAS_GRAPHS
#include <ATen/core/GraphImplInterface.h>
#endif

namespace accel::tensor {
namespace {

// Work of `first` that is queued now ends before `second` begins with what is queued from now on.
void order(const c10::Stream& first, const c10::Stream& second) {
  c10::Event reached(first.device_type());
  reached.record(first);
  reached.block(second);
}

c10::Stream current_stream(c10::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

bool ran_out_of_memory(const std::exception& error) {
  if (const auto* const own = dynamic_cast<const Error*>(&error)) return own->status() == Status::kOutOfMemory;
  return dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr;
}

std::string message_of(const std::exception& error) {
  const auto* const of_torch = dynamic_cast<const c10::Error*>(&error);
  const std::string message = of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
  return message.substr(0, message.find('\n'));
}

// An error of the work while it was recorded, for which operators that failed are the reason.
[[noreturn]] void refuse(const std::exception& error, const std::string& failed_operator, c10::Device device) {
  require(!ran_out_of_memory(error), Status::kOutOfMemory, "device ", device.str(),
          " has no memory for a captured step, which keeps all of its own: ", message_of(error));
  fail(Status::kUnsupported, "device ", device.str(), " cannot capture the operator ", failed_operator, ": ",
       message_of(error), "; expected a step that reads no number on the host and waits for nothing");
}

}  // namespace

#if ACCEL_TORCH_HAS_GRAPHS
class DeviceGraph::Recorder {
 public:
  explicit Recorder(c10::Device device) : graph_(at::create_graph_impl(device.type())) {}

  void begin() { graph_->capture_begin({0, 0}, at::GraphCaptureMode::ThreadLocal); }
  void end() {
    graph_->capture_end();
    graph_->instantiate();
  }
  // After an error, which has ended the recording, or not.
  void give_up() noexcept {
    try {
      graph_->capture_end();
    } catch (const std::exception&) {  // the device says again what is known
    }
    graph_->reset();
  }
  void replay() { graph_->replay(); }

 private:
  std::unique_ptr<at::GraphImplInterface> graph_;
};

bool DeviceGraph::is_supported(c10::DeviceType type) {
  return type != c10::DeviceType::CPU && type != c10::DeviceType::Meta && at::has_graph_impl(type);
}
#else
class DeviceGraph::Recorder {
 public:
  explicit Recorder(c10::Device) {}
  void begin() {}
  void end() {}
  void give_up() noexcept {}
  void replay() {}
};

bool DeviceGraph::is_supported(c10::DeviceType) { return false; }
#endif

DeviceGraph::DeviceGraph(c10::Device device) : device_(device) {
  require(is_supported(device.type()), Status::kUnsupported, "device ", device.str(),
          " has no graphs; expected a device for which LibTorch has at::accelerator::Graph");
  recorder_ = std::make_unique<Recorder>(device);
}

DeviceGraph::~DeviceGraph() {
  try {
    synchronize(device_);            // it may be replaying
  } catch (const std::exception&) {  // the device is lost, and its work with it
  }
}

void DeviceGraph::capture(const c10::Stream& stream, const std::function<void()>& work) {
  synchronize(device_);
  const FailedOperator failed;
  const c10::StreamGuard guard(stream);
  recorder_->begin();
  try {
    work();
  } catch (const std::exception& error) {
    recorder_->give_up();
    if (failed.name().empty() && !ran_out_of_memory(error)) throw;
    refuse(error, failed.name(), device_);
  } catch (...) {
    recorder_->give_up();
    throw;
  }
  try {
    recorder_->end();
  } catch (const std::exception& error) {  // something was refused, and whoever asked for it has not said so
    fail(Status::kUnsupported, "device ", device_.str(), " has not recorded the step: ", message_of(error),
         "; expected a step that reads no number on the host and waits for nothing");
  }
}

void DeviceGraph::replay() { recorder_->replay(); }

c10::Stream new_stream_behind_current(c10::Device device) {
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getNewStream(device);
  order_behind_current(stream);
  return stream;
}

void order_behind_current(const c10::Stream& stream) { order(current_stream(stream.device()), stream); }

void continue_behind(const c10::Stream& stream) { order(stream, current_stream(stream.device())); }

}  // namespace accel::tensor
