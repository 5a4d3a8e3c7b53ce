// SPDX-License-Identifier: Apache-2.0
// Traces: self times, our spans by kind, a few steps in detail, damage.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/error.hpp"
#include "report/trace_events.hpp"
#include "report/trace_summary.hpp"
#include "temporary_folder.hpp"

namespace accel::report {
namespace {

std::string event(const std::string& category, const std::string& name, double begin, double length,
                  const std::string& arguments = "", int process = 0, const std::string& thread = "1") {
  return text(R"({"ph":"X","cat":")", category, R"(","name":")", name, R"(","ts":)", begin, R"(,"dur":)", length,
              R"(,"pid":)", process, R"(,"tid":)", thread, R"(,"args":{)", arguments, "}}");
}

std::string kind(const std::string& name) { return R"("kind":")" + name + "\""; }

TraceSummary summary_of(const std::string& events, Problems& problems, int64_t rank = -1) {
  const tests::TemporaryFolder folder;
  const std::string path =
      folder.write("t.json", R"({"schemaVersion":1,"baseTimeNanoseconds":1000000000,"traceEvents":[)" + events + "]}");
  TraceSummarizer summarizer;
  summarizer.add("t.json", read_trace(path, rank, "t.json", problems));
  return summarizer.finish();
}

const OperatorTime& operator_of(const TraceSummary& summary, const std::string& name) {
  return *std::find_if(summary.operators.begin(), summary.operators.end(),
                       [&name](const OperatorTime& one) { return one.name == name; });
}

TEST(Trace, SelfTimeIsWithoutWhatIsCalled) {
  Problems problems;
  // In the order in which they end, as profilers write them.
  const TraceSummary summary =
      summary_of(event("cpu_op", "inner", 20, 10) + "," + event("cpu_op", "inner", 40, 20) + "," +
                     event("cpu_op", "outer", 10, 80) + "," + event("cpu_op", "other thread", 30, 5, "", 0, "\"2\"") +
                     "," + event("python_function", "f", 0, 100) + "," + event("kernel", "gemm", 0, 7, "", 0, "9"),
                 problems);
  EXPECT_EQ(problems.total(), 0);
  EXPECT_EQ(summary.num_events, 6);
  EXPECT_NEAR(operator_of(summary, "outer").self_seconds, 50e-6, 1e-12);
  EXPECT_NEAR(operator_of(summary, "outer").seconds, 80e-6, 1e-12);
  EXPECT_NEAR(operator_of(summary, "inner").self_seconds, 30e-6, 1e-12);
  EXPECT_EQ(operator_of(summary, "inner").count, 2);
  EXPECT_TRUE(operator_of(summary, "gemm").is_on_device);
  EXPECT_EQ(summary.operators.front().name, "outer");
  EXPECT_EQ(summary.operators.size(), 4U);
}

TEST(Trace, OurSpansByKindAndRank) {
  Problems problems;
  const TraceSummary summary =
      summary_of(R"_({"ph":"M","name":"process_name","pid":5,"tid":0,"args":{"name":"rank 1 (host)"}},)_" +
                     event("accel", "step", 0, 100, kind("step"), 5) + "," +
                     event("accel", "all_reduce", 10, 30, kind("collective") + R"(,"bytes":64)", 5) + "," +
                     event("accel", "all_reduce", 60, 20, kind("collective") + R"(,"bytes":36)", 5),
                 problems);
  ASSERT_EQ(summary.spans.size(), 2U);
  EXPECT_EQ(summary.spans[0].kind, "collective");
  EXPECT_EQ(summary.spans[0].rank, 1);
  EXPECT_EQ(summary.spans[0].count, 2);
  EXPECT_EQ(summary.spans[0].bytes, 100);
  EXPECT_NEAR(summary.spans[0].seconds, 50e-6, 1e-12);
  EXPECT_NEAR(summary.spans[1].seconds, 50e-6, 1e-12);
}

TEST(Trace, ShowsThreeStepsWithoutTheFirst) {
  Problems problems;
  std::string events;
  for (int step = 0; step < 6; ++step)
    events += event("accel", text("step ", step), step * 100, 90, kind("step")) + ",";
  for (int step = 0; step < 6; ++step) events += event("cpu_op", text("operator ", step), step * 100 + 10, 50) + ",";
  events.pop_back();
  const TraceSummary summary = summary_of(events, problems, 3);
  std::vector<std::string> names;
  for (const TimelineSpan& span : summary.timeline) {
    EXPECT_EQ(span.rank, 3);
    names.push_back(span.name);
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"operator 1", "operator 2", "operator 3", "step 1", "step 2", "step 3"}));
  const auto first = std::find_if(summary.timeline.begin(), summary.timeline.end(),
                                  [](const TimelineSpan& span) { return span.name == "operator 1"; });
  EXPECT_NEAR(first->begin, 10e-6, 1e-9);
  EXPECT_EQ(first->depth, 1);
}

TEST(Trace, SpansThatCrossAreNotNegative) {
  Problems problems;
  const TraceSummary summary = summary_of(event("cpu_op", "a", 0, 10) + "," + event("cpu_op", "b", 5, 10), problems);
  for (const OperatorTime& time : summary.operators) EXPECT_GE(time.self_seconds, 0);
  EXPECT_NEAR(operator_of(summary, "a").self_seconds, 5e-6, 1e-12);
}

TEST(Trace, DamageIsCountedAndNamed) {
  Problems problems;
  const TraceSummary summary = summary_of(
      event("cpu_op", "good", 0, 10) + R"(,{"ph":"X","cat":"cpu_op","ts":NaN},{"ph":"X","cat":"cpu_op","ts":"x"},7,)" +
          event("cpu_op", "negative", 0, -1),
      problems);
  EXPECT_EQ(summary.operators.size(), 1U);
  ASSERT_EQ(problems.all().size(), 1U);
  EXPECT_EQ(problems.all()[0].count, 3);
  EXPECT_EQ(words_of(problems.all()[0]).find("t.json: 3 damaged events, the first: event 2"), 0U);
}

TEST(Trace, CutOffOneIsReadAsFarAsItGoes) {
  const tests::TemporaryFolder folder;
  const std::string whole =
      "{\"traceEvents\":[" + event("cpu_op", "a", 0, 10) + "," + event("cpu_op", "b", 20, 10) + "]}";
  for (size_t size = 0; size < whole.size(); ++size) {
    Problems problems;
    const TraceEvents read = read_trace(folder.write("t.json", whole.substr(0, size)), 0, "t.json", problems);
    EXPECT_EQ(problems.total(), 1) << size;
    EXPECT_LE(read.events.size(), 2U);
  }
  Problems problems;
  EXPECT_EQ(read_trace(folder.write("t.json", whole), 0, "t.json", problems).events.size(), 2U);
  EXPECT_EQ(problems.total(), 0);
  EXPECT_EQ(read_trace(folder.write("t.json", "\x89PNG\r\n"), 0, "t.json", problems).events.size(), 0U);
  EXPECT_EQ(problems.all()[0].kind, "damaged traces");
}

}  // namespace
}  // namespace accel::report
