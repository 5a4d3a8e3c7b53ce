// SPDX-License-Identifier: Apache-2.0
// Device graph: work that a stream records once, and that the device does again by one call, with the same memory. It
// is of several parts where the host has work in between.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <functional>
#include <memory>
#include <vector>

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

  // Whether this thread is in the work of capture().
  static bool is_capturing();
  // In the work of capture(): ends a part of the graph and begins another. Each replay calls `between` behind the first
  // of these, for what the host has to do there; now it is not called.
  static void interrupt(std::function<void()> between);

 private:
  struct Part {
    std::unique_ptr<GraphRecorder> recorder;
    std::function<void()> between;  // behind it; null of the last one
  };

  void begin_part();
  void end_part();
  void give_up() noexcept;

  const c10::Device device_;
  bool is_open_ = false;  // the last part is recorded now
  std::vector<Part> parts_;
};

// A stream of its own. Its work begins after that of the current stream.
c10::Stream new_stream_behind_current(c10::Device device);
// Work that is queued on `stream` from now on is done after the work of the current one.
void order_behind_current(const c10::Stream& stream);
// Work that is queued on the current stream from now on is done after the work of `stream`.
void continue_behind(const c10::Stream& stream);

}  // namespace accel::tensor
