// SPDX-License-Identifier: Apache-2.0
// Windows over text and tokens, and packed documents.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <numeric>
#include <random>
#include <set>

#include "data/datasets/sequences/numbers_file.hpp"
#include "data/datasets/sequences/packed_dataset.hpp"
#include "data/datasets/sequences/text_source.hpp"
#include "data/datasets/sequences/window_dataset.hpp"
#include "data_fixture.hpp"

namespace accel::data {
namespace sequences_test {

std::string column(const c10::IValue& item, size_t index) { return json_of(item.toListRef()[index]); }

class SequencesOfText : public FilesTest {
 protected:
  static WindowDataset windows(const std::string& path, const std::optional<std::string>& suffix, int64_t length) {
    return WindowDataset(std::make_shared<const TextSource>(path, suffix), length);
  }
};

TEST_F(SequencesOfText, WindowsOfAFile) {
  const WindowDataset dataset = windows(write("a.txt", std::string("ABCDEFG\xff\n")), std::nullopt, 4);
  EXPECT_EQ(dataset.length(), 2);
  EXPECT_EQ(json_of(dataset.item(0)), "[[65,66,67,68],[66,67,68,69]]");
  EXPECT_EQ(json_of(dataset.batch({1, 0})), "[[[69,70,71,255],[65,66,67,68]],[[70,71,255,10],[66,67,68,69]]]");
  EXPECT_EQ(dataset.item(0).toListRef()[0].toTensor().scalar_type(), at::kLong);
  expect_same_alone(dataset, {1, 0});
}

TEST_F(SequencesOfText, FolderInTheOrderOfPathsWithLargeFilesBetween) {
  const std::string large((1 << 20) + 3, 'x');
  write("b/large.py", large);
  write("a.py", "12345");
  write("c.py", "67890");
  write("b/empty.py", "");
  write("ignored.txt", "no");
  const WindowDataset dataset = windows(folder_.native(), ".py", 2);
  EXPECT_EQ(dataset.length(), (5 + (1 << 20) + 3 + 5 - 1) / 2);
  EXPECT_EQ(column(dataset.item(2), 0), "[53,120]");
  EXPECT_EQ(column(dataset.item(dataset.length() - 1), 1), "[57,48]");
  const int64_t seam = (5 + (1 << 20) + 3) / 2 - 1;
  EXPECT_EQ(column(dataset.item(seam), 1), "[120,54]");
}

TEST_F(SequencesOfText, RefusesWhatHasNoText) {
  const std::string path = write("a.txt", "1234");
  expect_error(Status::kNotFound, "nowhere", [] { windows("/nowhere", std::nullopt, 4); });
  expect_error(Status::kInvalidArgument, "has 4 bytes; expected at least 5", [&] { windows(path, std::nullopt, 4); });
  expect_error(Status::kInvalidArgument, "sequence_length is 0", [&] { windows(path, std::nullopt, 0); });
  expect_error(Status::kNotFound, "ends with .py", [&] { windows(folder_.native(), ".py", 4); });
  expect_error(Status::kInvalidArgument, "neither", [] { windows("/dev/null", std::nullopt, 4); });
}

TEST(Sequences, WindowsOfTokensOfEveryWidth) {
  for (const auto dtype : {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kUInt16, at::kUInt32}) {
    const WindowDataset dataset(tensor_tokens(at::arange(10).to(dtype)), 3, 2);
    EXPECT_EQ(dataset.length(), 4) << c10::toString(dtype);
    EXPECT_EQ(json_of(dataset.item(3)), "[[6,7,8],[7,8,9]]") << c10::toString(dtype);
  }
  EXPECT_EQ(json_of(WindowDataset(tensor_tokens(at::full({3}, 65535, at::kLong).to(at::kUInt16)), 2).item(0)),
            "[[65535,65535],[65535,65535]]");
  EXPECT_EQ(WindowDataset(tensor_tokens(at::arange(10)), 3).length(), 3);
  expect_error(Status::kTypeMismatch, "dtype Float", [] { tensor_tokens(at::ones({3})); });
  expect_error(Status::kShapeMismatch, "one dimension", [] { tensor_tokens(at::ones({3, 1}, at::kLong)); });
  expect_error(Status::kInvalidArgument, "stride is 0", [] { WindowDataset(tensor_tokens(at::arange(10)), 3, 0); });
  expect_error(Status::kInvalidArgument, "has 3 tokens; expected at least 4",
               [] { WindowDataset(tensor_tokens(at::arange(3)), 3); });
}

std::shared_ptr<const TokenSource> tokens_of(const Numbers& tokens) {
  return tensor_tokens(at::tensor(tokens, at::kLong));
}

TEST(Sequences, DocumentsBehindEachOther) {
  const auto tokens = tokens_of({1, 2, 0, 3, 0, 4, 5, 6, 7});
  const PackedDataset dataset(tokens, documents_ended_by(*tokens, 0), 4, PackedDataset::Packing::kConcatenate, 99);
  EXPECT_EQ(dataset.length(), 3);
  EXPECT_EQ(json_of(dataset.item(0)), "[[1,2,0,3],[2,0,-100,0],[0,1,2,0],[0,0,0,1]]");
  EXPECT_EQ(json_of(dataset.item(1)), "[[0,4,5,6],[-100,5,6,7],[0,0,1,2],[1,2,2,2]]");
  EXPECT_EQ(json_of(dataset.item(2)), "[[7,99,99,99],[-100,-100,-100,-100],[0,0,0,0],[2,-1,-1,-1]]");
  expect_same_alone(dataset, {2, 0, 1});
}

TEST(Sequences, DocumentsThatFitBest) {
  const auto tokens = tokens_of({10, 11, 12, 20, 30, 31, 32, 33, 40, 41, 50, 51, 52, 53, 54, 55});
  const auto documents = documents_of_offsets(*tokens, at::tensor({0, 3, 4, 8, 10, 16}, at::kLong));
  const PackedDataset dataset(tokens, documents, 5, PackedDataset::Packing::kBestFit, 0);
  // Segments of 5, 4, 3, 2, 1 and 1: the one token of document 1 goes to the four of document 2.
  EXPECT_EQ(dataset.length(), 4);
  EXPECT_EQ(json_of(dataset.item(0)), "[[10,11,12,40,41],[11,12,-100,41,-100],[0,1,2,0,1],[0,0,0,3,3]]");
  EXPECT_EQ(json_of(dataset.item(1)), "[[20,30,31,32,33],[-100,31,32,33,-100],[0,0,1,2,3],[1,2,2,2,2]]");
  EXPECT_EQ(json_of(dataset.item(2)), "[[50,51,52,53,54],[51,52,53,54,55],[0,1,2,3,4],[4,4,4,4,4]]");
  EXPECT_EQ(json_of(dataset.item(3)), "[[55,0,0,0,0],[-100,-100,-100,-100,-100],[0,0,0,0,0],[4,-1,-1,-1,-1]]");
}

TEST(Sequences, PackingLosesNoTokenAndCutsNoShortDocument) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    Numbers offsets{0};
    for (int i = 0; i < 40; ++i) offsets.push_back(offsets.back() + static_cast<int64_t>(random() % 20));
    if (offsets.back() == 0) continue;
    Numbers numbers(static_cast<size_t>(offsets.back()));
    std::iota(numbers.begin(), numbers.end(), 1);
    const auto tokens = tokens_of(numbers);
    for (const auto packing : {PackedDataset::Packing::kConcatenate, PackedDataset::Packing::kBestFit}) {
      const PackedDataset dataset(tokens, offsets, 13, packing, 0);
      std::multiset<int64_t> seen;
      for (int64_t index = 0; index < dataset.length(); ++index) {
        const auto item = dataset.item(index);
        const auto at = [&](size_t column, int64_t place) {
          return item.toListRef()[column].toTensor().const_data_ptr<int64_t>()[place];
        };
        for (int64_t place = 0; place < 13; ++place) {
          const int64_t document = at(3, place), token = at(0, place);
          if (document < 0) continue;
          seen.insert(token);
          EXPECT_TRUE(offsets[document] < token && token <= offsets[document + 1]);
          EXPECT_EQ(at(1, place), token == offsets[document + 1] ? -100 : token + 1);
          const bool is_short = offsets[document + 1] - offsets[document] <= 13;
          if (packing == PackedDataset::Packing::kBestFit && is_short) {
            EXPECT_EQ(at(2, place), token - offsets[document] - 1);
          }
        }
      }
      EXPECT_TRUE(std::equal(seen.begin(), seen.end(), numbers.begin(), numbers.end()));
    }
  }
}

TEST(Sequences, RefusesWrongDocuments) {
  const auto tokens = tokens_of({1, 2, 3});
  const auto refused = [&](const Numbers& offsets, const std::string& part) {
    expect_error(Status::kInvalidArgument, part,
                 [&] { documents_of_offsets(*tokens, at::tensor(offsets, at::kLong)); });
  };
  refused({0, 2}, "from 0 to 2; expected 0 to the 3 tokens");
  refused({1, 3}, "from 1 to 3");
  refused({0, 2, 1, 3}, "document 1 begins at 2 and ends at 1");
  expect_error(Status::kInvalidArgument, "0 tokens", [&] {
    const auto none = tokens_of({});
    PackedDataset(none, documents_ended_by(*none, 0), 4, PackedDataset::Packing::kBestFit, 0);
  });
}

class SequencesOfFiles : public FilesTest {};

TEST_F(SequencesOfFiles, RawNumbersAreMapped) {
  const std::string path = write("tokens.bin", std::string("\x01\x00\xff\xff\x02\x01", 6));
  EXPECT_EQ(json_of(map_numbers(path, at::kUInt16).to(at::kLong)), "[1,65535,258]");
  at::Tensor mapped = map_numbers(path, at::kShort);
  mapped.fill_(7);  // does not reach the file
  EXPECT_EQ(json_of(map_numbers(path, at::kUInt16).to(at::kLong)), "[1,65535,258]");
  expect_error(Status::kCorrupt, "has 6 bytes; expected a multiple of 4", [&] { map_numbers(path, at::kUInt32); });
  expect_error(Status::kInvalidArgument, "expected a dtype", [&] { map_numbers(path, std::nullopt); });
  expect_error(Status::kNotFound, "nowhere", [] { map_numbers("/nowhere", at::kInt); });
  EXPECT_EQ(map_numbers(write("empty.bin", ""), at::kInt).numel(), 0);
}

std::string npy(const std::string& dictionary, const std::string& data) {
  const std::string header = dictionary + "\n";
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size()) + '\0' + header + data;
}

TEST_F(SequencesOfFiles, NpyFilesSayTheirShape) {
  const std::string six("\x00\x01\x02\x03\x04\x05", 6);
  const auto read = [&](const std::string& dictionary) {
    return json_of(map_numbers(write("a.npy", npy(dictionary, six)), std::nullopt));
  };
  EXPECT_EQ(read("{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }"), "[[0,1,2],[3,4,5]]");
  EXPECT_EQ(read("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }"), "[[0,2,4],[1,3,5]]");
  EXPECT_EQ(read("{'shape': (3,), 'fortran_order': False, 'descr': '<i2'}"), "[256,770,1284]");
  const auto refused = [&](Status status, const std::string& dictionary, const std::string& part) {
    expect_error(status, part, [&] { read(dictionary); });
  };
  refused(Status::kCorrupt, "{'descr': '|u1', 'fortran_order': False, 'shape': (7,), }",
          "expected 7 as its header says");
  refused(Status::kUnsupported, "{'descr': '>i2', 'fortran_order': False, 'shape': (3,), }", "lowest byte first");
  refused(Status::kUnsupported, "{'descr': '|O', 'fortran_order': False, 'shape': (3,), }", "|O");
  refused(Status::kUnsupported, "{'descr': [('a', '<i2')], 'fortran_order': False, 'shape': (3,), }", "fields");
  refused(Status::kCorrupt, "{'descr': '|u1', 'fortran_order': Maybe, 'shape': (6,), }", "neither True nor False");
  refused(Status::kCorrupt, "{'descr': '|u1', 'shape': (6,), }", "no descr, fortran_order or shape");
  refused(Status::kCorrupt, "{'descr': '|u1', 'fortran_order': False, 'shape': (4611686018427387904, 8), }", "2^63");
  refused(Status::kCorrupt, "{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999999999999,), }", "64 bits");
  expect_error(Status::kCorrupt, "cut short", [&] { map_numbers(write("b.npy", "\x93NUMPY\x01"), std::nullopt); });
  expect_error(Status::kTypeMismatch, "holds uint8; expected int64", [&] {
    map_numbers(write("a.npy", npy("{'descr': '|u1', 'fortran_order': False, 'shape': (6,), }", six)), at::kLong);
  });
}

}  // namespace sequences_test
}  // namespace accel::data
