// SPDX-License-Identifier: Apache-2.0
// Lines of metrics.jsonl: every type, and what is damaged.
#include "report/metrics_reader.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace accel::report {
namespace {

class MetricsReaderTest : public testing::Test {
 protected:
  void take(const std::string& line) {
    const std::string_view view = line;
    reader_.take(&view, ++number_, 1);
  }
  const Series& series(const std::string& name, int64_t rank = kNoRank) { return run_.series.at({rank, name}); }
  std::string problem(size_t i = 0) { return words_of(run_.problems.all().at(i)); }

  report::Run run_;  // the base class has a Run(), too
  MetricsReader reader_{run_, 100000};
  int64_t number_ = 0;
};

TEST_F(MetricsReaderTest, ReadsValues) {
  take(
      R"({"type":"values","time":10.5,"step":3,"values":{"loss":1.5,"train/lr":1e-3,"deep":{"er":2},"note":"text","ok":true,"none":null}})");
  EXPECT_EQ(series("loss").points()[0].step, 3);
  EXPECT_EQ(series("loss").points()[0].time, 10.5);
  EXPECT_EQ(series("train/lr").points()[0].value, 1e-3);
  EXPECT_EQ(series("deep/er").points()[0].value, 2);
  EXPECT_EQ(series("ok").points()[0].value, 1);
  EXPECT_EQ(run_.series.size(), 4U);
  ASSERT_EQ(run_.notes.size(), 1U);
  EXPECT_EQ(run_.notes[0].words, "text");
  EXPECT_EQ(run_.status, "running");
  EXPECT_EQ(run_.problems.total(), 0);
}

TEST_F(MetricsReaderTest, ReadsWhatIsNotFiniteOrHuge) {
  take(
      R"({"type":"values","time":1,"step":1,"values":{"a":"NaN","b":"Infinity","c":"-Infinity","d":1e999,"e":-1e999,"f":1e-999}})");
  EXPECT_TRUE(std::isnan(series("a").points()[0].value));
  for (const auto& [name, value] : {std::pair("b", INFINITY), std::pair("c", -INFINITY), std::pair("d", INFINITY),
                                    std::pair("e", -INFINITY), std::pair("f", 0.0F)})
    EXPECT_EQ(series(name).points()[0].value, value) << name;
}

TEST_F(MetricsReaderTest, CountsValuesWithoutAStep) {
  for (int i = 0; i < 3; ++i) take(R"({"type":"values","time":1,"step":null,"values":{"a":1}})");
  EXPECT_EQ(series("a").points().size(), 3U);
  EXPECT_EQ(series("a").points()[2].step, 2);
}

TEST_F(MetricsReaderTest, ReadsStartsConfigurationAndEnd) {
  take(
      R"({"type":"run","time":5,"project":"p","run":"r","host":"h","pid":7,"rank":0,"world_size":2,"version":"0.1.0","resumed":true,"environment":{"torch":"2.13"}})");
  take(R"({"type":"config","time":5,"values":{"a":{"b":1,"c":[1,2]},"d":"x"}})");
  ASSERT_EQ(run_.starts.size(), 1U);
  EXPECT_TRUE(run_.starts[0].is_resumed);
  EXPECT_EQ(run_.starts[0].world_size, 2);
  EXPECT_EQ(run_.environment, (Settings{{"torch", "2.13"}}));
  EXPECT_EQ(run_.configuration, (Settings{{"a/b", "1"}, {"a/c", "[1,2]"}, {"d", "x"}}));
  take(R"({"type":"end","time":9,"status":"finished"})");
  EXPECT_EQ(run_.status, "finished");
  EXPECT_EQ(run_.first_time, 5);
  EXPECT_EQ(run_.last_time, 9);
}

TEST_F(MetricsReaderTest, ReadsStepReports) {
  take(
      R"({"type":"step_report","time":5,"step":10,"ranks":[{"rank":0,"host":"a","seconds":{"data":0.5,"total":1},"memory":{"resident":100},"tokens_per_second":50},{"rank":1,"host":"b","seconds":{"data":0.7,"total":2},"model_flops_utilization":null}],"slowest_rank":1})");
  EXPECT_EQ(series("seconds/data", 1).points()[0].value, 0.7);
  EXPECT_EQ(series("memory/resident", 0).points()[0].value, 100);
  EXPECT_EQ(series("tokens_per_second", 0).points()[0].step, 10);
  EXPECT_EQ(run_.hosts.at(1), "b");
  EXPECT_EQ(run_.num_slowest.at(1), 1);
  EXPECT_EQ(run_.problems.total(), 0);
}

TEST_F(MetricsReaderTest, ReadsHistogramsPicturesTablesAndArtifacts) {
  take(
      R"({"type":"histogram","time":1,"step":2,"name":"w","min":0,"max":2,"count":3,"sum":4,"edges":[0,1,2],"counts":[1,2]})");
  take(R"({"type":"image","time":1,"step":2,"name":"i","file":"images/i.png","width":1,"height":1})");
  take(R"({"type":"figure","time":1,"step":2,"name":"f","file":"f.svg"})");
  take(R"({"type":"table","time":1,"step":1,"name":"t","columns":["a","b"],"rows":[[1,"x"]]})");
  take(R"({"type":"table","time":1,"step":2,"name":"t","columns":["a","b"],"rows":[[2,"y"],[3,null]]})");
  take(R"({"type":"artifact","time":1,"name":"m","file":"model.bin"})");
  ASSERT_EQ(run_.histograms.size(), 1U);
  EXPECT_EQ(run_.histograms[0].counts[1], 2);
  ASSERT_EQ(run_.pictures.size(), 2U);
  ASSERT_EQ(run_.tables.size(), 1U);
  EXPECT_EQ(run_.tables[0].rows, (std::vector<std::vector<std::string>>{{"2", "y"}, {"3", "null"}}));
  EXPECT_EQ(run_.artifacts[0].file, "model.bin");
  EXPECT_EQ(run_.problems.total(), 0);
}

TEST_F(MetricsReaderTest, NamesAndCountsDamagedLines) {
  take(
      "\x7f"
      "ELF\xff\x01");
  take("{\"type\":\"values\",\"time\":1,\"ste");
  take("");
  take(R"({"type":"values","time":1,"step":1,"values":{"a":1}})");
  EXPECT_EQ(series("a").points().size(), 1U);
  ASSERT_EQ(run_.problems.all().size(), 1U);
  EXPECT_NE(problem().find("metrics.jsonl: 2 damaged lines, the first: line 1 "), std::string::npos) << problem();
}

TEST_F(MetricsReaderTest, NamesLinesOfAnotherForm) {
  for (const char* const line :
       {"3", "[]", "{}", R"({"type":"new"})", R"({"type":"values","time":1,"step":1,"values":[1]})",
        R"({"type":"values","time":1,"step":"x","values":{"a":1}})", R"({"type":"values","time":[],"values":{}})",
        R"({"type":"histogram","name":"h","edges":[0,1],"counts":[1,2]})", R"({"type":"histogram","name":"h"})",
        R"({"type":"histogram","name":"h","edges":["a","b"],"counts":[1]})",
        R"({"type":"table","columns":[],"rows":[1]})", R"({"type":"step_report","ranks":[{"rank":-1}]})",
        R"({"type":"step_report","ranks":[{"rank":1000000}]})", R"({"type":"step_report","ranks":[7]})",
        R"({"type":"run","time":1,"pid":"x"})"})
    take(line);
  EXPECT_EQ(run_.problems.all().size(), 1U);
  EXPECT_EQ(run_.problems.total(), number_);
  EXPECT_NE(problem().find("lines of another form, the first: line 1: this is not an object"), std::string::npos)
      << problem();
  EXPECT_TRUE(run_.series.empty());
}

TEST_F(MetricsReaderTest, CutOffLineIsTheLast) {
  const std::string_view whole = R"({"type":"values","time":1,"step":1,"values":{"a":1}})", cut = whole.substr(0, 20);
  reader_.take_cut_off(&whole, 1, 1);
  EXPECT_EQ(run_.problems.total(), 0);
  EXPECT_EQ(series("a").points().size(), 1U);
  reader_.take_cut_off(&cut, 2, 1);
  EXPECT_EQ(problem(), "metrics.jsonl: 1 cut-off lines: line 2, the last one, does not end");
}

TEST_F(MetricsReaderTest, MemoryIsBounded) {
  MetricsReader small(run_, 1000);
  for (int i = 0; i < 20000; ++i) {
    const std::string line = R"({"type":"values","time":1,"step":)" + std::to_string(i) + R"(,"values":{"a":)" +
                             (i == 4321 ? "99" : "1") + "}}";
    const std::string_view view = line;
    small.take(&view, i + 1, 1);
  }
  EXPECT_LE(series("a").num_stored(), 1001U);
  EXPECT_EQ(series("a").statistics().count, 20000);
  EXPECT_EQ(series("a").statistics().greatest, 99);
  bool has_peak = false;
  for (const Point& point : series("a").points()) has_peak |= point.step == 4321;
  EXPECT_TRUE(has_peak);
}

TEST_F(MetricsReaderTest, LongTextIsCutBetweenCharacters) {
  std::string text;
  for (int i = 0; i < 600; ++i) text += "\xc3\xa4";
  take(R"({"type":"values","time":1,"step":1,"values":{"note":"x)" + text + R"("}})");
  ASSERT_EQ(run_.notes.size(), 1U);
  EXPECT_EQ(run_.notes[0].words, "x" + text.substr(0, 998) + "...");
}

}  // namespace
}  // namespace accel::report
