// SPDX-License-Identifier: Apache-2.0
#include "track/live_metrics.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace accel::track {
namespace {

RankOfJob rank_of(int64_t rank) {
  RankOfJob result{rank, "host", {}};
  result.report.times.steps = 7;
  result.report.times.mean[0] = 0.25;
  result.report.throughput.tokens_per_second = 1000;
  return result;
}

LiveMetrics::Scalars nothing() { return {}; }

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

TEST(LiveMetrics, SayNothingBeforeAnythingIsKnown) { EXPECT_EQ(LiveMetrics(0, nothing).text(), ""); }

TEST(LiveMetrics, ShowTheReportOfTheRank) {
  LiveMetrics metrics(2, nothing);
  metrics.set_report(rank_of(2));
  const std::string text = metrics.text();
  EXPECT_TRUE(has_line(text, "# TYPE accel_steps_total counter")) << text;
  EXPECT_TRUE(has_line(text, "accel_steps_total{rank=\"2\"} 7")) << text;
  EXPECT_TRUE(has_line(text, "accel_step_seconds{part=\"data\",rank=\"2\"} 0.25")) << text;
  EXPECT_TRUE(has_line(text, "accel_tokens_per_second{rank=\"2\"} 1000")) << text;
  EXPECT_EQ(text.find("accel_slowdown"), std::string::npos);
}

TEST(LiveMetrics, ShowAllRanksWhenTheyAreKnown) {
  LiveMetrics metrics(0, nothing);
  RankOfJob slow = rank_of(1);
  slow.report.times.mean[0] = 0.5;
  metrics.set_report(JobReport({rank_of(0), slow}));
  EXPECT_TRUE(has_line(metrics.text(), "accel_slowdown{rank=\"1\"} 2")) << metrics.text();
  EXPECT_TRUE(has_line(metrics.text(), "accel_step_seconds{part=\"data\",rank=\"1\"} 0.5"));
}

TEST(LiveMetrics, NamesOfScalarsAreEscapedAndNumbersMayBeAny) {
  const LiveMetrics metrics(0, [] { return LiveMetrics::Scalars{{"a\"b\\c\nd", NAN}, {"up", -INFINITY}}; });
  EXPECT_TRUE(has_line(metrics.text(), R"(accel_scalar{name="a\"b\\c\nd",rank="0"} NaN)")) << metrics.text();
  EXPECT_TRUE(has_line(metrics.text(), R"(accel_scalar{name="up",rank="0"} -Inf)"));
}

TEST(LiveMetrics, WantAReportOnceASecond) {
  LiveMetrics metrics(0, nothing);
  const auto now = LiveMetrics::Clock::now();
  EXPECT_TRUE(metrics.wants_report(now));
  EXPECT_FALSE(metrics.wants_report(now + std::chrono::milliseconds(999)));
  EXPECT_TRUE(metrics.wants_report(now + std::chrono::seconds(1)));
}

}  // namespace
}  // namespace accel::track
