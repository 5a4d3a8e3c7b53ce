// SPDX-License-Identifier: Apache-2.0
#include "track/json_lines.hpp"

#include <cmath>
#include <limits>

#include "expect_error.hpp"
#include "run_fixture.hpp"

namespace accel::track {
namespace {

class JsonLinesFile : public RunFixture {};

TEST_F(JsonLinesFile, ValuesOfAnyKindComeBack) {
  JsonLines sink(run_);
  Record record = values(12);
  record.add_number("loss", 0.1);
  record.add_number("odd \"name\"\n\x01/\\", 1e300);
  record.add_integer("tokens", std::numeric_limits<int64_t>::max());
  record.add_text("note", "two\nlines \"quoted\" \xc3\xa9");
  record.add_number("nan", std::nan(""));
  record.add_number("up", HUGE_VAL);
  record.add_number("down", -HUGE_VAL);
  sink.write(record);
  record.clear();
  record.add_number("without a step", -0.0);
  sink.write(record);
  sink.end(true);
  sink.flush(true);
  const std::vector<Json> all = lines();
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(type_of(all[0]), "run");
  EXPECT_EQ(json_text(all[0], "project", ""), "project");
  EXPECT_EQ(json_text(all[0], "version", ""), "1.2.3");
  EXPECT_EQ(json_integer(all[0], "pid", 0), ::getpid());
  EXPECT_FALSE(json_flag(all[0], "resumed", true));
  EXPECT_FALSE(json_text(*json_member(all[0], "environment"), "command", "").empty());
  EXPECT_EQ(type_of(all[1]), "values");
  EXPECT_EQ(json_integer(all[1], "step", 0), 12);
  EXPECT_EQ(json_number(all[1], "time", 0), 1012.5);
  const Json& found = *json_member(all[1], "values");
  EXPECT_EQ(json_number(found, "loss", 0), 0.1);
  EXPECT_EQ(json_number(found, "odd \"name\"\n\x01/\\", 0), 1e300);
  EXPECT_EQ(json_integer(found, "tokens", 0), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(json_text(found, "note", ""), "two\nlines \"quoted\" \xc3\xa9");
  EXPECT_EQ(json_text(found, "nan", ""), "NaN");
  EXPECT_EQ(json_text(found, "up", ""), "Infinity");
  EXPECT_EQ(json_text(found, "down", ""), "-Infinity");
  EXPECT_EQ(json_member(all[2], "step"), nullptr);
  EXPECT_EQ(json_text(all[3], "status", ""), "finished");
}

TEST_F(JsonLinesFile, HistogramsTablesAndConfigurations) {
  JsonLines sink(run_);
  Record record = values(1);
  Histogram histogram;
  histogram.min = -1;
  histogram.max = 3;
  histogram.count = 3;
  histogram.sum = 2.5;
  histogram.edges = {-1, 1, 3};
  histogram.counts = {1, 2};
  record.add_histogram("weights", histogram);
  sink.write(record);
  record.clear();
  record.kind = Record::Kind::kConfiguration;
  record.document = parse_json(R"({"lr":0.1,"model":{"layers":2}})", "test");
  sink.write(record);
  record.clear();
  record.kind = Record::Kind::kTable;
  record.name = "answers";
  record.step = 3;
  record.document = parse_json(R"({"columns":["a"],"rows":[[1],["x"]]})", "test");
  sink.write(record);
  sink.flush(false);
  const std::vector<Json> all = lines();
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(type_of(all[1]), "histogram");
  EXPECT_EQ(print_json(*json_member(all[1], "edges")), "[-1,1,3]");
  EXPECT_EQ(print_json(*json_member(all[1], "counts")), "[1,2]");
  EXPECT_EQ(json_number(all[1], "sum", 0), 2.5);
  EXPECT_EQ(print_json(*json_member(all[2], "values")), R"({"lr":0.1,"model":{"layers":2}})");
  EXPECT_EQ(json_text(all[3], "name", ""), "answers");
  EXPECT_EQ(print_json(*json_member(all[3], "rows")), R"([[1],["x"]])");
}

TEST_F(JsonLinesFile, PicturesAndArtifactsAreFilesBeside) {
  std::ofstream(folder_ + "/note.txt") << "content";
  JsonLines sink(run_);
  Record record = values(7);
  record.kind = Record::Kind::kImages;
  record.pictures.push_back({"a/../b", "bytes", "png", 2, 3});
  record.pictures.push_back({"a/../b", "others", "png", 2, 3});
  sink.write(record);
  record.clear();
  record.kind = Record::Kind::kArtifact;
  record.path = folder_ + "/note.txt";
  record.name = "note.txt";
  sink.write(record);
  sink.flush(true);
  const std::vector<Json> all = lines();
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(json_text(all[1], "file", ""), "images/a_.._b_7.png");
  EXPECT_EQ(json_text(all[2], "file", ""), "images/a_.._b_7_2.png");
  EXPECT_EQ(json_integer(all[1], "width", 0), 2);
  EXPECT_EQ(json_integer(all[1], "height", 0), 3);
  EXPECT_EQ(read(run_.folder + "/images/a_.._b_7.png"), "bytes");
  EXPECT_EQ(read(run_.folder + "/images/a_.._b_7_2.png"), "others");
  EXPECT_EQ(read(run_.folder + "/artifacts/note.txt"), "content");
}

TEST_F(JsonLinesFile, AnArtifactThatIsGoneHoldsNothingUp) {
  JsonLines sink(run_);
  Record record;
  record.kind = Record::Kind::kArtifact;
  record.path = folder_ + "/missing";
  record.name = "missing";
  sink.write(record);
  tests::expect_error(Status::kIo, "the artifact '" + folder_ + "/missing' is gone", [&] { sink.flush(false); });
  record = values(1);
  record.add_number("loss", 1);
  sink.write(record);
  sink.flush(false);
  EXPECT_EQ(lines().size(), 3U);
}

TEST_F(JsonLinesFile, ALineThatACrashCutOffIsRemoved) {
  std::filesystem::create_directories(run_.folder);
  const std::string begun = "{\"type\":\"values\",\"step\":1,\"values\":{\"loss\":0." + std::string(10000, '1');
  std::ofstream(run_.folder + "/metrics.jsonl") << "{\"type\":\"end\"}\n" << begun;
  run_.resumed = true;
  JsonLines sink(run_);
  sink.flush(false);
  const std::vector<Json> all = lines();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(type_of(all[0]), "end");
  EXPECT_TRUE(json_flag(all[1], "resumed", false));
}

TEST_F(JsonLinesFile, AFileWithoutAWholeLineBeginsAgain) {
  std::filesystem::create_directories(run_.folder);
  std::ofstream(run_.folder + "/metrics.jsonl") << std::string(5000, 'x');
  JsonLines sink(run_);
  sink.flush(false);
  EXPECT_EQ(lines().size(), 1U);
}

TEST_F(JsonLinesFile, AFolderThatIsRemovedIsMadeAnew) {
  JsonLines sink(run_);
  sink.flush(false);
  std::filesystem::remove_all(folder_ + "/run");
  Record record = values(5);
  record.add_number("loss", 1);
  sink.write(record);
  sink.flush(false);
  const std::vector<Json> all = lines();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(type_of(all[0]), "run");
  EXPECT_EQ(json_integer(all[1], "step", 0), 5);
}

}  // namespace
}  // namespace accel::track
