// SPDX-License-Identifier: Apache-2.0
// Which steps a profiler records.
#pragma once

#include <cstdint>

#include "config/generated/settings/profiler/profile.hpp"

namespace accel::track {

// Pinned; the numbers of accel.h.
enum class ProfileAction : int32_t { kNone = 0, kWarmup = 1, kRecord = 2, kRecordAndSave = 3 };

inline bool is_recorded(ProfileAction action) { return action >= ProfileAction::kRecord; }

// Returns the action of a step, which is counted from 0. Without `active` every step is recorded.
// @accelerate ProfileKwargs(schedule_option)
ProfileAction profile_action(const ProfileSettings& schedule, int64_t step);

}  // namespace accel::track
