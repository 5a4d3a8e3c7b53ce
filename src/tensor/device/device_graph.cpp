#include "tensor/device/device_graph.hpp"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <exception>
#include <string>

#include "base/error.hpp"
#include "tensor/device/device_work.hpp"
#include "tensor/lack_of_memory.hpp"
#include "tensor/operators/failed_operator.hpp"

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
  return means_no_memory(error);
}

std::string message_of(const std::exception& error) {
  const auto* const of_torch = dynamic_cast<const c10::Error*>(&error);
  const std::string message = of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
  return message.substr(0, message.find('\n'));
}

void require_memory(const std::exception& error, c10::Device device) {
  require(!ran_out_of_memory(error), Status::kOutOfMemory, "device ", device.str(),
          " has no memory for a captured step, which keeps all of its own: ", message_of(error));
}

}  // namespace

DeviceGraph::DeviceGraph(c10::Device device) : device_(device), recorder_(new_graph_recorder(device)) {}

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
    require_memory(error, device_);
    if (failed.name().empty()) throw;
    fail(Status::kUnsupported, "device ", device_.str(), " cannot capture the operator ", failed.name(), ": ",
         message_of(error), "; expected a step that reads no number on the host and waits for nothing");
  } catch (...) {
    recorder_->give_up();
    throw;
  }
  try {
    recorder_->end();
  } catch (const std::exception& error) {  // something was refused, and whoever asked for it has not said so
    require_memory(error, device_);
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
