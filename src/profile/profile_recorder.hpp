// SPDX-License-Identifier: Apache-2.0
// Records one cycle of a profile at a time: LibTorch's events, and the spans of the library.
#pragma once

#include <c10/core/DeviceType.h>

#include <cstdint>
#include <memory>

#include "config/generated/settings/profiler/profile.hpp"
#include "profile/kineto_session.hpp"
#include "trace/span.hpp"

namespace accel::profile {

struct ProfileCycle {
  std::unique_ptr<KinetoTrace> trace;
  Spans::Recording spans;
  int64_t begun = 0;  // nanoseconds since 1970
  int64_t first_step = 0, last_step = 0;
};

class ProfileRecorder {
 public:
  ProfileRecorder(const ProfileSettings& settings, c10::DeviceType device);
  ProfileRecorder(const ProfileRecorder&) = delete;
  ProfileRecorder& operator=(const ProfileRecorder&) = delete;
  // Drops what is being recorded.
  ~ProfileRecorder();

  bool is_recording() const { return session_ && session_->is_recording(); }
  void prepare() { session_->prepare(); }
  void start(int64_t step);
  ProfileCycle stop(int64_t step);
  // Nothing can be recorded after it.
  void close() { session_.reset(); }

 private:
  const bool with_modules_;
  std::unique_ptr<KinetoSession> session_;  // until it is closed
  int64_t begun_ = 0, first_step_ = 0;
};

}  // namespace accel::profile
