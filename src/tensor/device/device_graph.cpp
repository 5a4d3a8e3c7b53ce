// SPDX-License-Identifier: Apache-2.0
#include "tensor/device/device_graph.hpp"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>

#include <exception>
#include <string>
#include <utility>

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

DeviceGraph*& captured_graph() {
  thread_local DeviceGraph* captured = nullptr;
  return captured;
}

}  // namespace

DeviceGraph::DeviceGraph(c10::Device device) : device_(device) {
  new_graph_recorder(device);  // or an error
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
  DeviceGraph* const former = std::exchange(captured_graph(), this);
  const auto restored = c10::make_scope_exit([&] { captured_graph() = former; });
  begin_part();
  try {
    work();
  } catch (const std::exception& error) {
    give_up();
    require_memory(error, device_);
    if (failed.name().empty()) throw;
    fail(Status::kUnsupported, "device ", device_.str(), " cannot capture the operator ", failed.name(), ": ",
         message_of(error), "; expected a step that reads no number on the host and waits for nothing");
  } catch (...) {
    give_up();
    throw;
  }
  end_part();
}

void DeviceGraph::begin_part() {
  parts_.push_back({new_graph_recorder(device_), nullptr});
  parts_.back().recorder->begin();
  is_open_ = true;
}

void DeviceGraph::end_part() {
  is_open_ = false;
  try {
    parts_.back().recorder->end();
  } catch (const std::exception& error) {  // something was refused, and whoever asked for it has not said so
    require_memory(error, device_);
    fail(Status::kUnsupported, "device ", device_.str(), " has not recorded the step: ", message_of(error),
         "; expected a step that reads no number on the host and waits for nothing");
  }
}

void DeviceGraph::give_up() noexcept {
  if (std::exchange(is_open_, false)) parts_.back().recorder->give_up();
}

void DeviceGraph::replay() {
  for (const Part& part : parts_) {
    part.recorder->replay();
    if (part.between) part.between();
  }
}

bool DeviceGraph::is_capturing() { return captured_graph() != nullptr; }

void DeviceGraph::interrupt(std::function<void()> between) {
  DeviceGraph& graph = *captured_graph();
  graph.end_part();
  graph.parts_.back().between = std::move(between);
  graph.begin_part();
}

c10::Stream new_stream_behind_current(c10::Device device) {
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getNewStream(device);
  order_behind_current(stream);
  return stream;
}

void order_behind_current(const c10::Stream& stream) { order(current_stream(stream.device()), stream); }

void continue_behind(const c10::Stream& stream) { order(stream, current_stream(stream.device())); }

}  // namespace accel::tensor
