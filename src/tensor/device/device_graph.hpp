// Device graph: work that a stream records once, and that the device does again by one call, with the same memory.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <functional>
#include <memory>

#include "tensor/device/graph_recorder.hpp"

namespace accel::tensor {

class DeviceGraph {
 public:
  // kUnsupported where it has none.
  explicit DeviceGraph(c10::Device device);
  // Waits for the device.
  ~DeviceGraph();
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;

  // Records what `work` queues on the stream, which becomes the current one meanwhile. Nothing of it is computed, and
  // what it allocates there belongs to the graph. Where the device cannot record it: kUnsupported, with the operator;
  // kOutOfMemory; and errors of the work itself.
  void capture(const c10::Stream& stream, const std::function<void()>& work);
  // Queues the recorded work on the current stream.
  void replay();

 private:
  const c10::Device device_;
  const std::unique_ptr<GraphRecorder> recorder_;
};

// A stream of its own. Its work begins after that of the current stream.
c10::Stream new_stream_behind_current(c10::Device device);
// Work that is queued on `stream` from now on is done after the work of the current one.
void order_behind_current(const c10::Stream& stream);
// Work that is queued on the current stream from now on is done after the work of `stream`.
void continue_behind(const c10::Stream& stream);

}  // namespace accel::tensor
