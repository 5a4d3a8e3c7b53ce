// SPDX-License-Identifier: Apache-2.0
// Text files by rows: lines, JSON lines, CSV.
#include <atomic>
#include <random>
#include <thread>

#include "data/datasets/csv_dataset.hpp"
#include "data/datasets/json_line_dataset.hpp"
#include "data/datasets/line_dataset.hpp"
#include "data_fixture.hpp"

namespace accel::data {
namespace row_files_test {

class RowFiles : public FilesTest {
 protected:
  std::string all(const Dataset& dataset) const {
    std::string rows;
    for (int64_t i = 0; i < dataset.length(); ++i) rows += (i == 0 ? "" : " ") + json_of(dataset.item(i));
    return rows;
  }
};

TEST_F(RowFiles, LinesOfFiles) {
  write("a.txt", "\xef\xbb\xbfone\r\n\ntw\xc3\xb6");
  write("b.txt", "");
  write("c.txt", "three\n");
  const LineDataset dataset(folder_.native(), ".txt", false);
  EXPECT_EQ(dataset.length(), 4);
  EXPECT_EQ(all(dataset), "\"one\" \"\" \"tw\xc3\xb6\" \"three\"");
  EXPECT_EQ(json_of(dataset.batch({3, 0})), R"(["three","one"])");
  expect_error(Status::kNotFound, "index 4", [&] { dataset.item(4); });
}

TEST_F(RowFiles, LinesThatAreNoText) {
  const std::string path = write("a.txt", std::string("good\nb\xff"
                                                      "ad\nn\0l\nlast",
                                                      18));
  const LineDataset dataset(path, std::nullopt, false);
  EXPECT_EQ(dataset.length(), 4);
  expect_error(Status::kCorrupt, "a.txt', row 2 is not text at byte 1", [&] { dataset.item(1); });
  expect_error(Status::kCorrupt, "row 3", [&] { dataset.item(2); });
  const LineDataset skipping(path, std::nullopt, true);
  EXPECT_EQ(all(skipping), R"("good" "last")");
  EXPECT_EQ(skipping.num_skipped(), 2);
  EXPECT_EQ(LineDataset(write("empty.txt", ""), std::nullopt, false).length(), 0);
}

TEST_F(RowFiles, JsonListsOfNumbersAreTensors) {
  const JsonLineDataset dataset(
      write("a.jsonl",
            "{\"text\": \"a\\nb\", \"tokens\": [1, 2], \"x\": [[1, 2.5], [3, 4]], \"n\": null}\r\n"
            "[true, false]\n[1, \"a\", [2]]\n[]\n9007199254740993"),
      std::nullopt, false);
  const auto item = dataset.item(0).toGenericDict();
  EXPECT_EQ(item.at("text").toStringRef(), "a\nb");
  EXPECT_EQ(item.at("tokens").toTensor().scalar_type(), at::kLong);
  EXPECT_EQ(item.at("x").toTensor().scalar_type(), at::kDouble);
  EXPECT_EQ(item.at("x").toTensor().sizes(), (std::vector<int64_t>{2, 2}));
  EXPECT_TRUE(item.at("n").isNone());
  EXPECT_EQ(dataset.item(1).toTensor().scalar_type(), at::kBool);
  EXPECT_EQ(json_of(dataset.item(2)), R"([1,"a",[2]])");
  EXPECT_EQ(dataset.item(3).toTensor().numel(), 0);
  EXPECT_EQ(dataset.item(4).toInt(), 9007199254740993);
}

TEST_F(RowFiles, JsonThatIsMalformed) {
  const std::string path = write("a.jsonl", "{\"a\": 1}\n{\"a\": }\n\n{\"a\": 2} x\n\"\\u0000\"\n{\"a\": 3}");
  const JsonLineDataset dataset(path, std::nullopt, false);
  EXPECT_EQ(dataset.length(), 6);
  for (const int64_t row : {1, 2, 3, 4})
    expect_error(Status::kCorrupt, "a.jsonl', row " + std::to_string(row + 1), [&] { dataset.item(row); });
  expect_error(Status::kCorrupt, "row 2", [&] { dataset.batch({0, 1}); });
  const JsonLineDataset skipping(path, std::nullopt, true);
  EXPECT_EQ(all(skipping), R"({"a":1} {"a":3})");
  EXPECT_EQ(skipping.num_skipped(), 4);
  const JsonLineDataset cut(write("cut.jsonl", "{\"a\": 1}\n{\"a\""), std::nullopt, false);
  expect_error(Status::kCorrupt, "row 2", [&] { cut.item(1); });
}

TEST_F(RowFiles, CsvInfersTypes) {
  const CsvDataset dataset(write("a.csv",
                                 "id,score,name,on\r\n"
                                 "1,0.5,\"a,\"\"b\"\"\nc\",true\r\n"
                                 "2, 3 ,x,False\n"
                                 "-7,1e3,,TRUE"),
                           std::nullopt, {});
  EXPECT_EQ(dataset.length(), 3);
  EXPECT_EQ(json_of(dataset.item(0)), R"({"id":1,"score":0.5,"name":"a,\"b\"\nc","on":true})");
  EXPECT_EQ(json_of(dataset.item(2)), R"({"id":-7,"score":1000.0,"name":"","on":true})");
  EXPECT_EQ(json_of(dataset.batch({1, 0})),
            R"({"id":[2,1],"score":[3.0,0.5],"name":["x","a,\"b\"\nc"],"on":[false,true]})");
  expect_same_alone(dataset, {2, 0, 1});
}

TEST_F(RowFiles, CsvWithGivenTypes) {
  const std::string path = write("a.csv", "1;x;\n2;y;7\n");
  CsvOptions options;
  options.delimiter = ';';
  options.has_header = false;
  options.missing = -1;
  options.types = {{"0", at::kFloat}, {"2", at::kInt}};
  const CsvDataset dataset(path, std::nullopt, options);
  const auto batch = dataset.batch({0, 1}).toGenericDict();
  EXPECT_EQ(batch.at("0").toTensor().scalar_type(), at::kFloat);
  EXPECT_EQ(batch.at("2").toTensor().scalar_type(), at::kInt);
  EXPECT_EQ(json_of(batch), R"({"0":[1.0,2.0],"1":["x","y"],"2":[-1,7]})");
  expect_same_alone(dataset, {1, 0});
  options.types = {{"price", at::kFloat}};
  expect_error(Status::kNotFound, "'price'", [&] { CsvDataset(path, std::nullopt, options); });
  options.types = {{"2", at::kByte}};
  expect_error(Status::kCorrupt, "row 1, column '2' is empty",
               [&] { CsvDataset(path, std::nullopt, options).item(0); });
}

TEST_F(RowFiles, CsvThatIsMalformed) {
  const std::string path = write("a.csv", "a,b\n1,2\n3\n4,5,6\n7,8\"9\n\"1\"x,2\nten,3\n,4\n5,6\n");
  CsvOptions options;
  options.types = {{"a", at::kLong}};
  const CsvDataset dataset(path, std::nullopt, options);
  EXPECT_EQ(dataset.length(), 8);
  const auto refused = [&](int64_t row, const std::string& part) {
    expect_error(Status::kCorrupt, "a.csv', row " + part, [&] { dataset.item(row); });
  };
  refused(1, "3 has 1 cells; expected 2");
  refused(2, "4 has 3 cells");
  refused(3, "5: cell 2 has a quote inside text");
  refused(4, "6: cell 1 has text behind its quotes");
  refused(5, "7, column 'a' is 'ten'; expected Long");
  refused(6, "8, column 'a' is empty");
  expect_error(Status::kCorrupt, "row 3", [&] { dataset.batch({0, 1}); });
  options.skip_malformed = true;
  const CsvDataset skipping(path, std::nullopt, options);
  EXPECT_EQ(all(skipping), R"({"a":1,"b":2} {"a":5,"b":6})");
  EXPECT_EQ(skipping.num_skipped(), 6);
}

TEST_F(RowFiles, CsvHeaders) {
  write("a.csv", "x,y\n1,2\n");
  write("b.csv", "x,y\n3,4\n");
  EXPECT_EQ(all(CsvDataset(folder_.native(), ".csv", {})), R"({"x":1,"y":2} {"x":3,"y":4})");
  write("c.csv", "y,x\n5,6\n");
  expect_error(Status::kCorrupt, "c.csv', row 1 is another header", [&] { CsvDataset(folder_.native(), ".csv", {}); });
  const auto refused = [&](const std::string& content, const std::string& part) {
    expect_error(Status::kCorrupt, part, [&] { CsvDataset(write("d.csv", content), std::nullopt, {}); });
  };
  refused("", "is empty; expected a header");
  refused("x,x\n", "names the column 'x' twice");
  refused("\"x\n1,2\n", "row 1: cell 1 has quotes that are not closed");
  EXPECT_EQ(CsvDataset(write("d.csv", "x,y\n"), std::nullopt, {}).length(), 0);
  CsvOptions options;
  options.delimiter = '"';
  expect_error(Status::kInvalidArgument, "delimiter",
               [&] { CsvDataset(write("d.csv", "x\n"), std::nullopt, options); });
}

// Whatever the cells are: written by the rules of RFC 4180 they come back.
TEST_F(RowFiles, CsvCellsComeBack) {
  std::mt19937 random(5);
  const std::string letters = "ab,\"\n\r ;";
  std::string file = "0,1,2\n";
  std::vector<std::vector<std::string>> expected;
  for (int row = 0; row < 300; ++row) {
    expected.emplace_back();
    for (int column = 0; column < 3; ++column) {
      std::string cell = "x", quoted;
      for (size_t i = random() % 6; i > 0; --i) cell += letters[random() % letters.size()];
      for (const char byte : cell) quoted += byte == '"' ? std::string("\"\"") : std::string(1, byte);
      const bool needs_quotes = cell.find_first_of(",\"\n\r") != std::string::npos || random() % 2 == 0;
      file += (column > 0 ? "," : "") + (needs_quotes ? '"' + quoted + '"' : cell);
      expected.back().push_back(cell);
    }
    file += random() % 2 == 0 ? "\n" : "\r\n";
  }
  const CsvDataset dataset(write("a.csv", file), std::nullopt, {});
  ASSERT_EQ(dataset.length(), 300);
  for (int64_t row = 0; row < 300; ++row)
    for (int64_t column = 0; column < 3; ++column)
      EXPECT_EQ(dataset.item(row).toGenericDict().at(std::to_string(column)).toStringRef(), expected[row][column]);
}

TEST_F(RowFiles, SeveralThreadsReadAtOnce) {
  std::string file = "a,b\n";
  for (int i = 0; i < 100; ++i) file += std::to_string(i) + ",x\n";
  const CsvDataset dataset(write("a.csv", file), std::nullopt, {});
  std::atomic<int64_t> sum{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&] {
      for (int64_t i = 0; i < 100; ++i) sum += dataset.item(i).toGenericDict().at("a").toInt();
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(sum, 4 * 4950);
}

}  // namespace row_files_test
}  // namespace accel::data
