// SPDX-License-Identifier: Apache-2.0
#include "trace/profile_schedule.hpp"

namespace accel::track {

ProfileAction profile_action(const ProfileSettings& schedule, int64_t step) {
  if (!schedule.active.value) return ProfileAction::kRecord;
  if (step < schedule.skip_first.value) return ProfileAction::kNone;
  // Unsigned, and each part compared by itself: sums of large settings would overflow.
  const auto wait = static_cast<uint64_t>(schedule.wait.value);
  const auto before_active = wait + static_cast<uint64_t>(schedule.warmup.value);
  const auto active = static_cast<uint64_t>(*schedule.active.value);
  const auto behind_first = static_cast<uint64_t>(step - schedule.skip_first.value);
  const bool is_in_first = behind_first < before_active || behind_first - before_active < active;
  uint64_t in_cycle = behind_first;
  if (!is_in_first) {  // so a cycle is shorter than a number of steps, which fits
    const uint64_t cycle = before_active + active;
    if (schedule.repeat.value > 0 && behind_first / cycle >= static_cast<uint64_t>(schedule.repeat.value))
      return ProfileAction::kNone;
    in_cycle = behind_first % cycle;
  }
  if (in_cycle < wait) return ProfileAction::kNone;
  if (in_cycle < before_active) return ProfileAction::kWarmup;
  return in_cycle - before_active == active - 1 ? ProfileAction::kRecordAndSave : ProfileAction::kRecord;
}

}  // namespace accel::track
