// SPDX-License-Identifier: Apache-2.0
#include "trace/step_times.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

namespace accel {
namespace step_times_test {

using Section = StepTimes::Section;

constexpr std::chrono::milliseconds kNap(5);
constexpr double kNapSeconds = 0.005;

double part(const StepTimes::Seconds& seconds, StepPart part) { return seconds[static_cast<size_t>(part)]; }

double total(const StepTimes::Seconds& seconds) { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

void nap(StepTimes& times, StepPart part) {
  const Section section(times, part);
  std::this_thread::sleep_for(kNap);
}

// One step of a loop, of which each part takes at least a nap.
void run_step(StepTimes& times) {
  nap(times, StepPart::kData);
  nap(times, StepPart::kForward);
  {
    const Section backward(times, StepPart::kBackward);
    nap(times, StepPart::kCommunication);
    std::this_thread::sleep_for(kNap);
  }
  nap(times, StepPart::kOptimizer);
  times.note_update();
  std::this_thread::sleep_for(kNap);
}

TEST(StepTimes, EachPartHasItsOwnTimeAndAllOfItIsCounted) {
  StepTimes times;
  EXPECT_EQ(times.report().steps, 0);
  const auto begin = std::chrono::steady_clock::now();
  for (int step = 0; step < 3; step++) run_step(times);
  const StepTimes::Report report = times.report();
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_EQ(report.steps, 3);
  for (size_t i = 0; i < kStepParts; i++) {
    const auto which = static_cast<StepPart>(i);
    EXPECT_GT(part(report.mean, which), 0.95 * kNapSeconds) << step_part_name(which);
    EXPECT_GT(part(report.latest, which), 0.95 * kNapSeconds) << step_part_name(which);
  }
  EXPECT_NEAR(3 * total(report.mean), elapsed, 0.05 * elapsed);
}

TEST(StepTimes, AStepEndsWhereTheLoopGoesOnAfterAnUpdate) {
  StepTimes times;
  const auto pass = [&](StepPart part) { const Section section(times, part); };
  for (int micro_batch = 0; micro_batch < 4; micro_batch++) {  // two groups of two
    pass(StepPart::kForward);
    pass(StepPart::kBackward);
    for (int optimizer = 0; optimizer < 2; optimizer++) {
      pass(StepPart::kOptimizer);
      if (micro_batch % 2 == 1) times.note_update();
    }
    EXPECT_EQ(times.report().steps, (micro_batch + 1) / 2);
  }
  times.reset();
  EXPECT_EQ(times.report().steps, 0);
  pass(StepPart::kForward);
  EXPECT_EQ(times.report().steps, 0);
}

TEST(StepTimes, OtherThreadsAreNotLookedAt) {
  StepTimes times;
  {
    const Section forward(times, StepPart::kForward);
    std::thread([&] { nap(times, StepPart::kCommunication); }).join();
    std::thread([&] { nap(times, StepPart::kData); }).join();
  }
  times.note_update();
  const StepTimes::Report report = times.report();
  EXPECT_EQ(part(report.latest, StepPart::kCommunication), 0);
  EXPECT_EQ(part(report.latest, StepPart::kData), 0);
  EXPECT_GT(part(report.latest, StepPart::kForward), 0.95 * 2 * kNapSeconds);
  // The loop may go on elsewhere between its parts.
  std::thread([&] { nap(times, StepPart::kData); }).join();
  times.note_update();
  EXPECT_EQ(times.report().steps, 2);
}

}  // namespace step_times_test
}  // namespace accel
