// SPDX-License-Identifier: Apache-2.0
// Graph recorder: records what is queued on a stream, and does it again. LibTorch has one for some kinds of devices, a
// plugin libaccel_KIND_graphs.so for others. Header only but for the last two: plugins use no symbol of libaccel.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>

namespace accel::tensor {

// One recording. Where a device refuses something, its functions throw what LibTorch throws.
class GraphRecorder {
 public:
  GraphRecorder() = default;
  virtual ~GraphRecorder() = default;
  GraphRecorder(const GraphRecorder&) = delete;
  GraphRecorder& operator=(const GraphRecorder&) = delete;

  // From now on the current stream, which is not the default one, records what is queued on it. Threads other than this
  // one may do with the device what they like.
  virtual void begin() = 0;
  // By the thread that began, with the same current stream. After an error nothing is recorded, and the device may be
  // used as before begin().
  virtual void end() = 0;
  // Instead of end(), after an error of what was recorded.
  virtual void give_up() noexcept = 0;
  // Queues what was recorded on the current stream.
  virtual void replay() = 0;
};

// A plugin exports it under the name below; null without memory.
using CreateGraphRecorder = GraphRecorder* (*)();
inline constexpr char kCreateGraphRecorderSymbol[] = "accel_create_graph_recorder";

// Why devices of this type cannot record, as one line; empty if they can. Loads the plugin of the type when it is first
// asked; kUnsupported for one that is there and cannot be loaded.
std::string recording_obstacle(c10::DeviceType type);
// kUnsupported where there is none.
std::unique_ptr<GraphRecorder> new_graph_recorder(c10::Device device);

}  // namespace accel::tensor
