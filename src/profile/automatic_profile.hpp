// SPDX-License-Identifier: Apache-2.0
// The profile that `accel profile` has a program make of itself, without a change of the program.
#pragma once

#include <c10/core/DeviceType.h>

#include <memory>

#include "comm/communicator.hpp"
#include "config/generated/settings/profiler/profile.hpp"

namespace accel::profile {

// Whether this process's first state begins a profile, on the thread that makes it. The variables ACCEL_PROFILE_* set
// what is recorded.
bool is_profiled_automatically();
void begin_automatic_profile(const ProfileSettings& settings, std::shared_ptr<comm::Communicator> communicator,
                             c10::DeviceType device);
// At the end of training, and of the process. Nothing if it has ended, or on another thread.
void end_automatic_profile() noexcept;

}  // namespace accel::profile
