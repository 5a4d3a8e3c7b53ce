// SPDX-License-Identifier: Apache-2.0
#include "track/step_report.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "expect_error.hpp"

namespace accel::track {
namespace {

using tests::expect_error;

RankOfJob rank_of(int64_t rank, double forward, double waiting) {
  RankOfJob result{rank, "host" + std::to_string(rank), {}};
  result.report.times.steps = 10;
  result.report.times.mean[static_cast<size_t>(StepPart::kForward)] = forward;
  result.report.times.mean[static_cast<size_t>(StepPart::kCommunication)] = waiting;
  result.report.process.resident = 123456789;
  return result;
}

TEST(StepReport, NamesTheRankForWhichTheOthersWait) {
  const JobReport job({rank_of(0, 0.1, 0.3), rank_of(1, 0.4, 0.0), rank_of(2, 0.1, 0.3), rank_of(3, 0.2, 0.2)});
  EXPECT_EQ(job.slowest_rank, 1);
  EXPECT_DOUBLE_EQ(*job.slowdown, 4.0);  // of 0.1, 0.1, 0.2, 0.4 the smaller one in the middle is 0.1
  EXPECT_FALSE(job.tokens_per_second.has_value());
}

TEST(StepReport, NamesNobodyWhereNobodyWaits) {
  EXPECT_FALSE(JobReport({rank_of(0, 0.1, 0)}).slowest_rank.has_value());
  RankOfJob before_a_step = rank_of(1, 0.1, 0);
  before_a_step.report.times.steps = 0;
  EXPECT_FALSE(JobReport({rank_of(0, 0.1, 0), before_a_step}).slowest_rank.has_value());
}

TEST(StepReport, SumsWhatRanksTrainWith) {
  auto first = rank_of(0, 0.1, 0), second = rank_of(1, 0.1, 0);
  first.report.throughput.tokens_per_second = 100;
  second.report.throughput.tokens_per_second = 50;
  EXPECT_DOUBLE_EQ(*JobReport({first, second}).tokens_per_second, 150);
}

TEST(StepReport, SurvivesTheWayToAnotherRank) {
  RankOfJob sent = rank_of(3, 0.125, 0.5);
  sent.report.throughput = {1e6, 0.25};
  sent.report.device_most_in_use = 1LL << 40;
  const RankOfJob got = rank_of_job(parse_json(print_json(to_json(sent)), "test"));
  EXPECT_EQ(got.rank, 3);
  EXPECT_EQ(got.host, "host3");
  EXPECT_EQ(got.report.times.steps, 10);
  EXPECT_EQ(got.report.times.mean, sent.report.times.mean);
  EXPECT_EQ(got.report.device_most_in_use, 1LL << 40);
  EXPECT_EQ(got.report.throughput.tokens_per_second, 1e6);
  EXPECT_EQ(got.report.throughput.model_flops_utilization, 0.25);
}

TEST(StepReport, ATrackerGetsTheFormatOfRuns) {
  const Json tracked = tracked_report(JobReport({rank_of(0, 0.1, 0.3), rank_of(1, 0.4, 0)}));
  const Json& second = (*json_member(tracked, "ranks")->items())[1];
  EXPECT_EQ(json_member(tracked, "slowest_rank")->integer(), 1);
  EXPECT_EQ(json_integer(second, "rank", -1), 1);
  EXPECT_DOUBLE_EQ(json_number(*json_member(second, "seconds"), "forward", -1), 0.4);
  EXPECT_DOUBLE_EQ(json_number(*json_member(second, "seconds"), "total", -1), 0.4);
  EXPECT_EQ(json_integer(*json_member(second, "memory"), "resident", -1), 123456789);
}

TEST(StepReport, ATableHasALineForEachRank) {
  const std::string table = step_report_table(to_json(JobReport({rank_of(0, 0.1, 0.3), rank_of(1, 0.4, 0)})));
  EXPECT_NE(table.find("communication %"), std::string::npos) << table;
  EXPECT_NE(table.find("   0  host0     10  400.00"), std::string::npos) << table;
  EXPECT_NE(table.find("rank 1 is the slowest: it computes 4.00 times as long as the median\n"), std::string::npos)
      << table;
  EXPECT_NE(step_report_table(to_json(rank_of(0, 0.1, 0.3).report)).find("25.0"), std::string::npos);
}

TEST(StepReport, RefusesWhatIsNoReport) {
  for (const char* text : {"1", "{}", R"({"ranks": 3})", R"({"ranks": [1]})", R"({"steps": "x"})",
                           R"({"steps": 1, "latest": {"data": "x"}})"})
    expect_error(Status::kTypeMismatch, "report", [&] { step_report_table(parse_json(text, "test")); });
}

TEST(Throughput, CountsOverTheTimeOfTheLoop) {
  Throughput throughput;
  StepTimes::Report times;
  times.steps = 4;
  times.mean[0] = 0.5;
  EXPECT_FALSE(throughput.report(times).tokens_per_second.has_value());
  throughput.count(300);
  throughput.count(100);
  EXPECT_DOUBLE_EQ(*throughput.report(times).tokens_per_second, 200);
  EXPECT_FALSE(throughput.report(times).model_flops_utilization.has_value());
  throughput.set_model(1e9, 1e12);
  EXPECT_DOUBLE_EQ(*throughput.report(times).model_flops_utilization, 0.2);
  times.open_step = 2;
  EXPECT_DOUBLE_EQ(*throughput.report(times).tokens_per_second, 100);
  throughput.reset();
  EXPECT_DOUBLE_EQ(*throughput.report(times).tokens_per_second, 0);
}

TEST(Throughput, RefusesNumbersThatCannotBe) {
  Throughput throughput;
  expect_error(Status::kInvalidArgument, "n_tokens is -1", [&] { throughput.count(-1); });
  expect_error(Status::kInvalidArgument, "flops_per_token is 0", [&] { throughput.set_model(0, 1); });
  expect_error(Status::kInvalidArgument, "peak_flops_per_second is -3", [&] { throughput.set_model(1, -3); });
  expect_error(Status::kInvalidArgument, "peak_flops_per_second is nan", [&] { throughput.set_model(1, NAN); });
}

TEST(Throughput, AReportIsDueEverySoManySteps) {
  Throughput throughput;
  StepTimes::Report times;
  std::vector<int64_t> due;
  for (times.steps = 0; times.steps < 12; times.steps++)
    if (throughput.is_report_due(times, 5)) due.push_back(times.steps);
  EXPECT_EQ(due, (std::vector<int64_t>{5, 10}));
  EXPECT_FALSE(throughput.is_report_due(times, 0));
  times.steps = 5;  // they were counted anew
  EXPECT_TRUE(throughput.is_report_due(times, 5));
}

}  // namespace
}  // namespace accel::track
