// SPDX-License-Identifier: Apache-2.0
// One recording of Kineto, LibTorch's profiler.
#pragma once

#include <c10/core/DeviceType.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "config/generated/settings/profiler/profile.hpp"

namespace accel::profile {

struct KinetoEvent {
  enum class Kind : uint8_t { kOperator, kMemory, kDevice };

  Kind kind = Kind::kOperator;
  std::string name;
  int64_t thread = 0;            // as the system numbers it
  int64_t begun = 0, ended = 0;  // nanoseconds since 1970
  int64_t bytes = 0;             // of kMemory: how many more
  int64_t flops = 0;
  uint64_t correlation = 0;  // of kDevice: that of its operator
  c10::DeviceType device = c10::DeviceType::CPU;
  int device_index = -1;
  std::vector<std::vector<int64_t>> shapes;
};

// A finished recording.
class KinetoTrace {
 public:
  virtual ~KinetoTrace() = default;
  virtual void for_each_event(const std::function<void(const KinetoEvent& event)>& visit) const = 0;
  // The trace as Kineto wrote it, valid while this object lives. The file is gone at once: a process may end without
  // destroying its profiler.
  virtual std::string_view text() = 0;
};

// At most one in a process; all calls are on one thread. Abandoned when it is destroyed elsewhere: the next one on its
// thread ends it.
class KinetoSession {
 public:
  // kInvalidArgument for an unknown activity, kUnsupported for a device that is not there, kInvalidState while another
  // profiler runs.
  KinetoSession(const ProfileSettings& settings, c10::DeviceType device);
  KinetoSession(const KinetoSession&) = delete;
  KinetoSession& operator=(const KinetoSession&) = delete;
  ~KinetoSession();

  // Does the slow preparations before a recording starts.
  void prepare();
  void start();
  std::unique_ptr<KinetoTrace> stop();
  bool is_recording() const { return *is_recording_; }

 private:
  struct Configuration;

  const std::unique_ptr<const Configuration> configuration_;
  // Shared with the thread, whose end is that of the recording.
  const std::shared_ptr<std::atomic<bool>> is_recording_ = std::make_shared<std::atomic<bool>>(false);
  bool is_prepared_ = false;  // and does not record yet
};

}  // namespace accel::profile
