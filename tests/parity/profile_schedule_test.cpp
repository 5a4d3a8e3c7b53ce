// SPDX-License-Identifier: Apache-2.0
// What a profiler records of each step, and when a cycle is complete.
#include <gtest/gtest.h>

#include "comm/backend/backend_communicator.hpp"
#include "config/generated/settings/profiler/profile.hpp"
#include "fixture.hpp"
#include "profile/profiler.hpp"
#include "trace/profile_schedule.hpp"

namespace accel::parity {
namespace profile_schedule_test {

ProfileSettings settings_of(const c10::IValue& schedule) {
  ProfileSettings settings;
  settings.wait = member(schedule, "wait").toInt();
  settings.warmup = member(schedule, "warmup").toInt();
  settings.active = member(schedule, "active").toInt();
  settings.repeat = member(schedule, "repeat").toInt();
  settings.skip_first = member(schedule, "skip_first").toInt();
  return settings;
}

std::string action_name(track::ProfileAction action) {
  static const char* const names[] = {"NONE", "WARMUP", "RECORD", "RECORD_AND_SAVE"};
  return names[static_cast<int>(action)];
}

std::vector<int64_t> complete_cycles(const ProfileSettings& settings, int64_t steps) {
  const auto alone = std::make_shared<comm::BackendCommunicator>(std::vector<c10::DeviceType>{c10::DeviceType::CPU});
  profile::Profiler profiler(settings, alone, c10::DeviceType::CPU);
  std::vector<int64_t> complete;
  profiler.set_trace_ready([&] { complete.push_back(profiler.step_number()); });
  for (int64_t step = 0; step < steps; step++) profiler.step();
  profiler.end();
  return complete;
}

TEST(ProfileSchedule, SameActionsAsTheReference) {
  size_t compared = 0;
  for (const auto& test_case : read_cases("profile_schedule")) {
    SCOPED_TRACE(test_case.name);
    const ProfileSettings settings = settings_of(member(test_case.input, "schedule_option"));
    const auto expected = member(test_case.expected, "actions").toListRef();
    for (size_t step = 0; step < expected.size(); step++)
      EXPECT_EQ(action_name(track::profile_action(settings, static_cast<int64_t>(step))), expected[step].toStringRef())
          << step;
    compared += expected.size();
  }
  EXPECT_GT(compared, 100U);
}

TEST(ProfileSchedule, CyclesAreCompleteWhenThoseOfTheReferenceAre) {
  size_t compared = 0;
  for (const auto& test_case : read_cases("profile_schedule")) {
    SCOPED_TRACE(test_case.name);
    const auto complete = complete_cycles(settings_of(member(test_case.input, "schedule_option")),
                                          member(test_case.input, "steps").toInt());
    EXPECT_EQ(static_cast<int64_t>(complete.size()), member(test_case.expected, "trace_ready_calls").toInt());
    EXPECT_EQ(complete, integers(member(test_case.expected, "trace_ready_step_numbers")));
    compared += complete.size();
  }
  EXPECT_GT(compared, 10U);
}

TEST(ProfileSchedule, LargeNumbersDoNotOverflow) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  ProfileSettings settings;
  settings.wait = settings.warmup = kMost;
  settings.active = kMost;
  settings.repeat = kMost;
  EXPECT_EQ(track::profile_action(settings, 5), track::ProfileAction::kNone);
  settings.wait = int64_t{0};
  EXPECT_EQ(track::profile_action(settings, kMost), track::ProfileAction::kRecord);
  settings.warmup = int64_t{0};
  EXPECT_EQ(track::profile_action(settings, kMost - 1), track::ProfileAction::kRecordAndSave);
}

}  // namespace profile_schedule_test
}  // namespace accel::parity
