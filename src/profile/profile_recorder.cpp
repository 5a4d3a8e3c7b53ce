// SPDX-License-Identifier: Apache-2.0
#include "profile/profile_recorder.hpp"

#include "base/tick_clock.hpp"

namespace accel::profile {

ProfileRecorder::ProfileRecorder(const ProfileSettings& settings, c10::DeviceType device)
    : with_modules_(settings.with_modules.value), session_(std::make_unique<KinetoSession>(settings, device)) {}

ProfileRecorder::~ProfileRecorder() {
  if (is_recording()) Spans::end();
}

void ProfileRecorder::start(int64_t step) {
  session_->start();
  Spans::begin(with_modules_);
  begun_ = unix_nanoseconds();
  first_step_ = step;
}

ProfileCycle ProfileRecorder::stop(int64_t step) {
  ProfileCycle cycle;
  cycle.spans = Spans::end();
  cycle.trace = session_->stop();
  cycle.begun = begun_;
  cycle.first_step = first_step_;
  cycle.last_step = step;
  return cycle;
}

}  // namespace accel::profile
