// SPDX-License-Identifier: Apache-2.0
#include "logging/progress_bar.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmath>
#include <thread>
#include <vector>

#include "expect_error.hpp"

namespace accel::track {
namespace {

using tests::expect_error;

using Clock = ProgressBar::Clock;

ProgressState state_of(int64_t count, std::optional<int64_t> total, double seconds, std::optional<double> rate,
                       std::optional<double> remaining) {
  ProgressState state;
  state.count = count;
  state.total = total;
  state.seconds = seconds;
  state.rate = rate;
  state.remaining_seconds = remaining;
  return state;
}

TEST(ProgressLine, HasEverythingThatIsKnown) {
  EXPECT_EQ(
      progress_line("train", "steps", state_of(40, 100, 12, 3.3, 18), {{"loss", 1.23456}, {"best", true}}, 81, false),
      "train:  40% |####      | 40/100 [00:12<00:18, 3.3 steps/s, loss 1.235, best true]");
  EXPECT_EQ(progress_line("", "rows", state_of(40, std::nullopt, 3723, 12345.6, std::nullopt), {}, 80, false),
            "40 rows [1:02:03, 12346 rows/s]");
  EXPECT_EQ(progress_line("x", "steps", state_of(0, 10, 0, std::nullopt, std::nullopt), {}, 40, false),
            "x:   0% |    | 0/10 [00:00<?, ? steps/s]");
}

TEST(ProgressLine, MoreThanTheTotalIsShownWithoutIt) {
  EXPECT_EQ(progress_line("", "steps", state_of(11, 10, 1, 1, std::nullopt), {}, 80, false),
            "11 steps [00:01, 1 steps/s]");
  EXPECT_EQ(progress_line("", "steps", state_of(0, 0, 1, std::nullopt, std::nullopt), {}, 80, false),
            "0 steps [00:01, ? steps/s]");
}

TEST(ProgressLine, FitsIntoAnyWidth) {
  const auto state = state_of(40, 100, 12, 3.3, 18);
  for (const bool is_utf8 : {false, true})
    for (size_t columns = 1; columns < 200; columns++)
      EXPECT_LE(columns_of(progress_line("\u8a13\u7df4", "steps", state, {{"loss", 1.5}}, columns, is_utf8)), columns);
}

TEST(ProgressLine, CutsTheLabelBeforeTheNumbers) {
  const auto state = state_of(40, 100, 12, 3.3, 18);
  EXPECT_EQ(progress_line("a long label", "steps", state, {}, 44, false),
            "a long labe40/100 [00:12<00:18, 3.3 steps/s]");
  EXPECT_EQ(progress_line("a long label", "steps", state, {}, 20, false), "a long l40/100 [00:1");
}

TEST(ProgressLine, DrawsEighthsOfABlock) {
  EXPECT_NE(progress_line("", "s", state_of(1, 16, 0, 1, 1), {}, 80, true).find("|\u2588\u2588\u258c "),
            std::string::npos);
  EXPECT_NE(progress_line("", "s", state_of(16, 16, 0, 1, 0), {}, 200, true).find("\u2588| 16/16"), std::string::npos);
}

TEST(ProgressLine, OddNamesCannotLeaveTheLine) {
  const std::string line =
      progress_line("a\nb\x1b[2J\xff", "st\reps", state_of(1, 2, 0, 1, 1), {{"k\n", std::string("\x07")}}, 80, false);
  for (const char character : line) EXPECT_GE(static_cast<unsigned char>(character), 0x20);
  EXPECT_EQ(line.find("a b [2J\xef\xbf\xbd: "), 0U) << line;
}

struct Shown {
  std::vector<std::string> lines;
  int last = 0;
  ProgressBar::Show show() {
    return [this](const char* line, bool is_last) {
      lines.emplace_back(line);
      last += is_last ? 1 : 0;
    };
  }
};

ProgressSettings every(int64_t milliseconds) {
  ProgressSettings settings;
  settings.interval_ms = milliseconds;
  return settings;
}

TEST(ProgressBar, DrawsOnceInAnInterval) {
  Shown shown;
  const auto begin = Clock::now();
  ProgressBar bar("train", 1000, every(100), true, shown.show(), Terminal::of_stderr(), begin);
  EXPECT_EQ(shown.lines.size(), 1U);
  for (int i = 1; i <= 1000; i++) bar.update(1, begin + std::chrono::milliseconds(i));
  EXPECT_EQ(shown.lines.size(), 11U);
  bar.end(begin + std::chrono::milliseconds(1000));
  bar.end();
  EXPECT_EQ(shown.lines.size(), 12U);
  EXPECT_EQ(shown.last, 1);
  EXPECT_NE(shown.lines.back().find("1000/1000 [00:01<00:00"), std::string::npos) << shown.lines.back();
  expect_error(Status::kInvalidState, "has ended", [&] { bar.update(1); });
  EXPECT_DOUBLE_EQ(bar.state().seconds, 1);
}

TEST(ProgressBar, TheRateFollowsWhatHappensOfLate) {
  const auto begin = Clock::now();
  ProgressBar bar(
      "", 10000, every(1000), true, [](const char*, bool) {}, Terminal::of_stderr(), begin);
  auto now = begin;
  for (int i = 0; i < 100; i++) bar.update(10, now += std::chrono::seconds(1));
  EXPECT_NEAR(*bar.state(now).rate, 10, 0.01);
  for (int i = 0; i < 30; i++) bar.update(2, now += std::chrono::seconds(1));
  EXPECT_NEAR(*bar.state(now).rate, 2 + 8 * std::exp(-3), 0.1);
  EXPECT_NEAR(*bar.state(now).remaining_seconds, (10000 - 1060) / *bar.state(now).rate, 1e-6);
  bar.update(2, now += std::chrono::seconds(60));  // one slow step
  EXPECT_LT(*bar.state(now).rate, 1);
}

TEST(ProgressBar, BeginsWhereARunWasResumed) {
  ProgressSettings settings = every(0);
  settings.initial = 50;
  const auto begin = Clock::now();
  ProgressBar bar("", 100, settings, false, {}, Terminal::of_stderr(), begin);
  bar.update(10, begin + std::chrono::seconds(1));
  const ProgressState state = bar.state(begin + std::chrono::seconds(1));
  EXPECT_EQ(state.count, 60);
  EXPECT_NEAR(*state.rate, 10, 1e-9);  // without what was there before
  EXPECT_NEAR(*state.remaining_seconds, 4, 1e-9);
}

TEST(ProgressBar, ShowsNothingWhereItMustNot) {
  Shown shown;
  ProgressSettings disabled = every(0);
  disabled.disable = std::optional<bool>(true);
  ProgressBar first("", 10, disabled, true, shown.show());
  ProgressBar second("", 10, every(0), false, shown.show());
  first.update(1);
  second.update(1);
  first.end();
  second.end();
  EXPECT_TRUE(shown.lines.empty());
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_NONBLOCK), 0);
  Terminal no_terminal(ends[1]);
  {
    ProgressBar third("", 10, every(0), true, {}, no_terminal);
    third.update(1);
  }
  char byte = 0;
  EXPECT_EQ(read(ends[0], &byte, 1), -1);
  ProgressSettings asked = every(0);
  asked.disable = std::optional<bool>(false);
  { const ProgressBar fourth("", 10, asked, true, {}, no_terminal); }
  EXPECT_EQ(read(ends[0], &byte, 1), 1);  // whole lines
  close(ends[0]);
  close(ends[1]);
}

TEST(ProgressBar, ManyThreadsMoveIt) {
  Shown shown;
  ProgressBar bar("", 40000, every(0), true, shown.show());
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; thread++)
    threads.emplace_back([&bar] {
      for (int i = 0; i < 10000; i++) bar.update(1);
    });
  for (std::thread& thread : threads) thread.join();
  bar.end();
  EXPECT_EQ(bar.state().count, 40000);
  EXPECT_NE(shown.lines.back().find("40000/40000"), std::string::npos);
  EXPECT_EQ(shown.last, 1);
}

TEST(ProgressBar, ItsCallbackMayUseIt) {
  ProgressBar* self = nullptr;
  int lines = 0;
  std::string refused;
  ProgressBar bar("", 10, every(0), true, [&](const char*, bool is_last) {
    lines++;
    if (self == nullptr || is_last) return;
    self->update(1);
    self->state();
    try {
      self->end();
    } catch (const Error& error) {
      refused = error.message();
    }
  });
  self = &bar;
  bar.update(1);
  EXPECT_EQ(lines, 2);
  EXPECT_EQ(bar.state().count, 2);
  EXPECT_NE(refused.find("the callback of a progress bar ends the bar"), std::string::npos);
}

TEST(ProgressBar, AnotherEpochBeginsAtNothing) {
  Shown shown;
  ProgressBar bar("epoch 0", 10, every(0), true, shown.show());
  bar.update(10);
  bar.restart(5, "epoch 1");
  bar.update(1);
  EXPECT_EQ(bar.state().count, 1);
  EXPECT_EQ(shown.lines.back().find("epoch 1:  20% "), 0U) << shown.lines.back();
}

TEST(ProgressBar, RefusesNumbersThatCannotBe) {
  ProgressBar bar("", 10, every(0), false, {});
  expect_error(Status::kInvalidArgument, "count is -1", [&] { bar.update(-1); });
  expect_error(Status::kInvalidArgument, "total is -2", [] { ProgressBar("", -2, {}, false, {}); });
}

}  // namespace
}  // namespace accel::track
