// SPDX-License-Identifier: Apache-2.0
#include "trace/trace_merge.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "expect_error.hpp"
#include "json/json.hpp"
#include "os/regular_file.hpp"
#include "trace/averages_table.hpp"
#include "trace/trace_text.hpp"

namespace accel::track {
namespace trace_merge_test {

using tests::expect_error;

class TraceMerge : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = (std::filesystem::path(::testing::TempDir()) / ("accel-traces-" + std::to_string(getpid()))).string();
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (std::filesystem::path(folder_) / name).string(); }
  std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(path(name)) << content;
    return path(name);
  }
  std::vector<Json> merge(const std::vector<std::string>& paths) const {
    merge_traces(paths, path("merged.json"));
    const Json merged = parse_json(RegularFile(path("merged.json")).read(), "merged");
    return *json_member(merged, "traceEvents")->items();
  }

  std::string folder_;
};

// A rank whose clock is `late` ns behind that of rank 0, and counts from another moment.
std::string trace_of_rank(int rank, int64_t base, int64_t late, const std::string& more = "") {
  const std::string pid = std::to_string(4000 + rank);
  const auto microseconds = [&](int64_t true_time) { return trace_microseconds(true_time - late - base); };
  return "{\"schemaVersion\": 1, \"deviceProperties\": [{\"x\":\"}]\\\"\"}],\n\"accel\":{\"rank\":" +
         std::to_string(rank) + ",\"host\":\"node" + std::to_string(rank) + "\",\"pid\":" + pid +
         ",\"clock\":{\"offset_ns\":" + std::to_string(late) + "}},\n\"baseTimeNanoseconds\": " + std::to_string(base) +
         ",\n\"traceEvents\": [" + "{\"ph\":\"M\",\"name\":\"process_name\",\"ts\":0,\"pid\":" + pid +
         ",\"tid\":0,\"args\":{\"name\":\"a.out\"}}," +
         "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::mm {[\",\"pid\":" + pid +
         ",\"tid\":7,\"ts\":" + microseconds(1000500000123) + ",\"dur\":3.5,\"args\":{\"pid\":1}}," +
         "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"gemm\",\"pid\":0,\"tid\":7,\"ts\":" +
         microseconds(1000500000200) +
         ",\"dur\":1},{\"ph\":\"i\",\"s\":\"g\",\"name\":\"window\",\"pid\":\"Traces\",\"tid\":\"t\",\"ts\":1}," +
         "{\"ph\":\"X\",\"cat\":\"accel\",\"name\":\"all_reduce\",\"pid\":" + pid +
         ",\"tid\":2000000001,\"ts\":" + microseconds(1000600000000 + 1000 * rank) +
         ",\"dur\":9,\"args\":{\"kind\":\"collective\",\"bytes\":64," + "\"group\":\"world\",\"sequence\":3}}" + more +
         "],\"traceName\": \"x\" }";
}

const Json* find_event(const std::vector<Json>& events, const std::string& name, int64_t pid) {
  for (const Json& event : events)
    if (json_text(event, "name", "") == name && json_member(event, "pid")->integer() == pid) return &event;
  return nullptr;
}

TEST_F(TraceMerge, RanksAreProcessesOnOneClock) {
  write("profile_1.json", trace_of_rank(1, 1000000000000, 777));
  write("profile_0.json", trace_of_rank(0, 900000000000, 0));
  write("profile_merged.json", "not a rank's");
  const std::vector<Json> events = merge({folder_});
  for (int64_t rank = 0; rank < 2; rank++) {
    SCOPED_TRACE(rank);
    const Json* const operation = find_event(events, "aten::mm {[", rank);
    ASSERT_NE(operation, nullptr);
    EXPECT_EQ(*json_member(*operation, "ts")->digits(), trace_microseconds(1000500000123 - 900000000000));
    EXPECT_EQ(json_integer(*json_member(*operation, "args"), "pid", 0), 1);
    EXPECT_NE(find_event(events, "gemm", 1000000 + rank), nullptr);
    EXPECT_NE(find_event(events, "window", rank), nullptr);
    const Json* const name = find_event(events, "process_name", rank);
    ASSERT_NE(name, nullptr);
    EXPECT_EQ(json_text(*json_member(*name, "args"), "name", ""),
              "rank " + std::to_string(rank) + " (node" + std::to_string(rank) + ")");
  }
  const Json* const start = find_event(events, "collective", 0);
  const Json* const finish = find_event(events, "collective", 1);
  ASSERT_NE(start, nullptr);
  ASSERT_NE(finish, nullptr);
  EXPECT_EQ(json_text(*start, "ph", ""), "s");
  EXPECT_EQ(json_text(*finish, "ph", ""), "f");
  EXPECT_EQ(json_integer(*start, "id", -1), json_integer(*finish, "id", -2));
}

TEST_F(TraceMerge, ATraceOfAnotherProfilerIsARankByItsName) {
  const std::string events = R"([{"ph":"X","name":"f","pid":99,"tid":1,"ts":1.5e3,"dur":1}])";
  write("profile_12.json", events);
  const std::vector<Json> merged = merge({path("profile_12.json")});
  const Json* const event = find_event(merged, "f", 12);
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(*json_member(*event, "ts")->digits(), "1500.000");
}

TEST_F(TraceMerge, WhatIsNoTraceIsRefused) {
  const auto refused = [this](const std::string& content, const std::string& reason) {
    SCOPED_TRACE(content);
    const std::string file = write("profile_0.json", content);
    expect_error(Status::kCorrupt, "'" + file + "' is not a Chrome trace: " + reason,
                 [&] { merge_traces({file}, path("merged.json")); });
    EXPECT_FALSE(std::filesystem::exists(path("merged.json")));
  };
  refused("", "expected '{' at byte 0");
  refused("{}", "it has no list traceEvents");
  refused("{\"traceEvents\":{}}", "it has no list traceEvents");
  refused("{\"traceEvents\":[1]}", "an event is not an object");
  refused("{\"traceEvents\":[{\"a\":1]}", "");
  refused("{\"traceEvents\":[{\"a\":\"b", "it ends within a string");
  refused("{\"traceEvents\":[{\"a\":01}]}", "");
  refused("{\"accel\":{\"rank\":-1},\"traceEvents\":[]}", "its rank is -1");
  refused("{\"accel\":{\"rank\":\"x\"},\"traceEvents\":[]}", "");
  refused("\x1f\x8b...", "it is compressed");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1) << "temporary files are left";
}

TEST_F(TraceMerge, ARankHasOneTrace) {
  const std::string one = write("a.json", trace_of_rank(0, 0, 0)), other = write("b.json", trace_of_rank(0, 0, 0));
  expect_error(Status::kCorrupt, "expected one trace of each rank", [&] {
    merge_traces({one, other}, path("merged.json"));
  });
  expect_error(Status::kNotFound, "has no trace", [&] { merge_traces({folder_}, path("merged.json")); });
}

TEST(TraceTimes, KeepTheirNanoseconds) {
  for (const int64_t time : {int64_t{0}, int64_t{1}, int64_t{999}, int64_t{-1500}, int64_t{4789015032974689}})
    EXPECT_EQ(trace_nanoseconds(trace_microseconds(time)), time);
  EXPECT_EQ(trace_nanoseconds("1.5e3"), 1500000);
  EXPECT_EQ(trace_nanoseconds("7"), 7000);
  EXPECT_EQ(trace_nanoseconds("1e300"), 9'000'000'000'000'000'000);
}

TEST(TraceAverages, AreATable) {
  const Json averages = parse_json(
      R"([{"name":"aten::add","kind":"operator","count":3,"self_cpu_us":10.0,"cpu_us":12.5,"bytes":0},
          {"name":"aten::mm","kind":"operator","count":1,"self_cpu_us":30.0,"cpu_us":30.0,"flops":2000000}])",
      "averages");
  EXPECT_EQ(averages_table(averages, "self_cpu_us", 0),
            "Name       Kind      Self CPU %  Self CPU       CPU  Calls    FLOP\n"
            "aten::mm   operator        75.0     30 us     30 us      1  2.00 M\n"
            "aten::add  operator        25.0     10 us  12.50 us      3       0\n");
  const std::string first = averages_table(averages, "count", 1);
  EXPECT_NE(first.find("aten::add"), std::string::npos);
  EXPECT_EQ(first.find("aten::mm"), std::string::npos);
  expect_error(Status::kInvalidArgument, "sort_by is 'name'", [&] { averages_table(averages, "name", 0); });
  expect_error(Status::kTypeMismatch, "averages is not a list", [&] { averages_table(Json(true), "count", 0); });
}

}  // namespace trace_merge_test
}  // namespace accel::track
