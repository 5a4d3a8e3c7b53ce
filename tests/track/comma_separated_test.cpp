// SPDX-License-Identifier: Apache-2.0
#include "track/comma_separated.hpp"

#include <cmath>

#include "run_fixture.hpp"

namespace accel::track {
namespace {

class CommaSeparatedFile : public RunFixture {
 protected:
  std::string table() const { return read(run_.folder + "/metrics.csv"); }
};

TEST_F(CommaSeparatedFile, ARowAStepWithColumnsThatAreAdded) {
  CommaSeparated sink(run_);
  Record record = values(1);
  record.add_number("loss", 0.5);
  sink.write(record);
  record = values(1);
  record.add_text("note", "a, \"b\"\nc");
  sink.write(record);
  sink.flush(false);
  EXPECT_EQ(table(), "step,time,loss,note\n1,1001.5,0.5,\"a, \"\"b\"\"\nc\"\n");
  record = values(2);
  record.add_integer("new, column", 7);
  record.add_number("loss", std::nan(""));
  sink.write(record);
  sink.flush(false);
  EXPECT_EQ(table(), "step,time,loss,note,\"new, column\"\n1,1001.5,0.5,\"a, \"\"b\"\"\nc\",\n2,1002.5,NaN,,7\n");
}

TEST_F(CommaSeparatedFile, ARunGoesOnInTheSameColumns) {
  {
    CommaSeparated sink(run_);
    Record record = values(1);
    record.add_number("b,c", 1);
    sink.write(record);
    sink.flush(true);
  }
  std::ofstream(run_.folder + "/metrics.csv", std::ios::app) << "2,1002.5";  // a crash
  CommaSeparated sink(run_);
  Record record = values(2);
  record.add_number("a", 3);
  record.add_number("b,c", 2);
  sink.write(record);
  sink.flush(true);
  EXPECT_EQ(table(), "step,time,\"b,c\",a\n1,1001.5,1,\n2,1002.5,2,3\n");
}

TEST_F(CommaSeparatedFile, ValuesWithoutAStepHaveRowsOfTheirOwn) {
  CommaSeparated sink(run_);
  for (int i = 0; i < 2; i++) {
    Record record;
    record.time = i;
    record.add_integer("n", i);
    sink.write(record);
  }
  sink.flush(false);
  EXPECT_EQ(table(), "step,time,n\n,0,0\n,1,1\n");
}

TEST_F(CommaSeparatedFile, TheConfigurationIsAFileBeside) {
  CommaSeparated sink(run_);
  Record record;
  record.kind = Record::Kind::kConfiguration;
  record.document = parse_json(R"({"lr":0.1})", "test");
  sink.write(record);
  sink.flush(false);
  EXPECT_EQ(read(run_.folder + "/config.json"), "{\"lr\":0.1}\n");
  EXPECT_EQ(table(), "");
}

TEST_F(CommaSeparatedFile, AFileThatIsRemovedIsMadeAnew) {
  CommaSeparated sink(run_);
  Record record = values(1);
  record.add_number("loss", 1);
  sink.write(record);
  sink.flush(false);
  std::filesystem::remove(run_.folder + "/metrics.csv");
  record = values(2);
  record.add_number("loss", 2);
  sink.write(record);
  sink.flush(false);
  EXPECT_EQ(table(), "step,time,loss\n2,1002.5,2\n");
}

}  // namespace
}  // namespace accel::track
