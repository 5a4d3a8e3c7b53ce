// SPDX-License-Identifier: Apache-2.0
// Datasets whose items are rows of columns: dense, ragged, joined.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <atomic>
#include <thread>

#include "data/datasets/callback_dataset.hpp"
#include "data/datasets/concatenated_dataset.hpp"
#include "data/datasets/tensor_dataset.hpp"
#include "data_fixture.hpp"

namespace accel::data {
namespace columns_test {

Collation padding(double value, int64_t multiple_of = 1, bool at_start = false, bool masks = false) {
  Collation collation;
  collation.kind = Collation::Kind::kPad;
  collation.padding = {value, multiple_of, at_start, masks};
  return collation;
}

RaggedDataset ragged() {
  return RaggedDataset({at::arange(10, 16), at::arange(12, at::kFloat).reshape({6, 2})},
                       at::tensor({0, 2, 2, 5, 6}, at::kLong));
}

TEST(Columns, NamesMakeMaps) {
  const TensorDataset dataset({at::arange(3), at::ones({3, 2})}, {"x", "y"});
  EXPECT_EQ(json_of(dataset.item(1)), R"({"x":1,"y":[1.0,1.0]})");
  EXPECT_EQ(json_of(dataset.batch({2, 0})), R"({"x":[2,0],"y":[[1.0,1.0],[1.0,1.0]]})");
  expect_same_alone(dataset, {0, 2}, padding(7, 4, true, true));
  expect_error(Status::kShapeMismatch, "column 'y' of the dataset has 2 rows; expected 3 as column 'x'", [] {
    TensorDataset({at::ones({3}), at::ones({2})}, {"x", "y"});
  });
  expect_error(Status::kAlreadyExists, "'x'", [] {
    TensorDataset({at::ones({3}), at::ones({3})}, {"x", "x"}).item(0);
  });
}

TEST(Columns, RaggedRowsArePaddedInPlace) {
  const RaggedDataset dataset = ragged();
  EXPECT_EQ(dataset.length(), 4);
  EXPECT_EQ(json_of(dataset.item(2)), "[[12,13,14],[[4.0,5.0],[6.0,7.0],[8.0,9.0]]]");
  EXPECT_EQ(json_of(dataset.item(1)), "[[],[]]");
  EXPECT_EQ(json_of(dataset.batch({3, 0}, padding(-1)).toListRef()[0]), "[[15,-1],[10,11]]");
  EXPECT_EQ(json_of(dataset.batch({3, 0}, padding(0, 3, true, true)).toListRef()[0]), "[[0,0,15],[0,10,11]]");
  EXPECT_EQ(json_of(dataset.batch({3, 0}, padding(0, 3, true, true)).toListRef()[1]),
            "[[false,false,true],[false,true,true]]");
  for (const auto& collation : {padding(0), padding(-3, 4), padding(2, 1, true), padding(-1, 8, true, true)})
    expect_same_alone(dataset, {3, 1, 0, 2, 2}, collation);
  expect_same_alone(dataset, {2, 2});
  expect_error(Status::kShapeMismatch, "item 1 of the batch (index 0) has 2 entries; expected 3", [&] {
    dataset.batch({2, 0});
  });
}

TEST(Columns, PaddingMustBeANumberOfTheRows) {
  const RaggedDataset bytes({at::ones({3}, at::kByte)}, at::tensor({0, 1, 3}, at::kLong));
  expect_error(Status::kInvalidArgument, "-1 is not a Byte", [&] { bytes.batch({0, 1}, padding(-1)); });
  expect_error(Status::kInvalidArgument, "0.5 is not a Byte", [&] { bytes.batch({0, 1}, padding(0.5)); });
  expect_error(Status::kInvalidArgument, "pad_to_multiple_of is 0", [&] { bytes.batch({0, 1}, padding(0, 0)); });
  for (const auto dtype :
       {at::kBool, at::kShort, at::kUInt16, at::kHalf, at::kBFloat16, at::kFloat, at::kComplexDouble}) {
    const RaggedDataset rows({at::zeros({3}, dtype)}, at::tensor({0, 1, 3}, at::kLong));
    const at::Tensor batch = rows.batch({0, 1}, padding(1)).toListRef()[0].toTensor();
    EXPECT_TRUE(at::equal(batch.to(at::kComplexDouble),
                          at::tensor({0.0, 1.0, 0.0, 0.0}).reshape({2, 2}).to(at::kComplexDouble)))
        << c10::toString(dtype);
  }
}

TEST(Columns, OffsetsMustLieInTheValues) {
  const auto make = [](std::vector<int64_t> offsets) {
    RaggedDataset({at::arange(4)}, at::tensor(offsets, at::kLong));
  };
  make({0});
  make({1, 1, 4});
  expect_error(Status::kInvalidArgument, "row 1 of tensor 0 begins at 3 and ends at 2", [&] { make({0, 3, 2}); });
  expect_error(Status::kShapeMismatch, "is 5; expected at most its 4", [&] { make({0, 5}); });
  expect_error(Status::kInvalidArgument, "is -1", [&] { make({-1, 2}); });
  expect_error(Status::kTypeMismatch, "offsets", [&] { make({}); });
  expect_error(Status::kTypeMismatch, "offsets", [] { RaggedDataset({at::arange(4)}, at::tensor({0, 4}, at::kInt)); });
  expect_error(Status::kInvalidArgument, "0 tensors", [] { RaggedDataset({}, at::tensor({0, 4}, at::kLong)); });
}

TEST(Columns, ConcatenatedOneBehindTheOther) {
  const auto numbers = [](int64_t begin, int64_t end) {
    return std::make_shared<const TensorDataset>(std::vector<at::Tensor>{at::arange(begin, end)});
  };
  const ConcatenatedDataset all({numbers(0, 3), numbers(0, 0), numbers(10, 12)});
  EXPECT_EQ(all.length(), 5);
  EXPECT_EQ(json_of(all.batch({4, 0, 3})), "[[11,0,10]]");
  EXPECT_EQ(json_of(all.batch({3, 4})), "[[10,11]]");
  expect_error(Status::kNotFound, "index 5", [&] { all.item(5); });
  expect_error(Status::kInvalidArgument, "0 datasets", [] { ConcatenatedDataset({}); });
}

TEST(Columns, CallbacksMakeItems) {
  int64_t length = 3;
  ItemFunctions functions;
  functions.length = [&] { return length; };
  functions.get = [](int64_t index) { return c10::IValue(at::full({index + 1}, index, at::kLong)); };
  const CallbackDataset one_by_one(functions);
  EXPECT_TRUE(one_by_one.calls_back());
  EXPECT_EQ(json_of(one_by_one.batch({2, 0}, padding(9))), "[[2,2,2],[0,9,9]]");
  expect_error(Status::kShapeMismatch, "item 1 of the batch (index 0) has shape [1]; expected [3]", [&] {
    one_by_one.batch({2, 0});
  });
  functions.get_items = [](c10::IntArrayRef indices) {
    std::vector<c10::IValue> items;
    for (const int64_t index : indices) items.emplace_back(index * 10);
    if (indices.size() == 3) items.pop_back();
    return items;
  };
  const CallbackDataset together(functions);
  EXPECT_EQ(json_of(together.batch({2, 0})), "[20,0]");
  expect_error(Status::kShapeMismatch, "gave 2 items for 3 indices", [&] { together.batch({2, 1, 0}); });
  length = 1;  // it is asked again each time
  expect_error(Status::kNotFound, "index 2", [&] { together.batch({2, 0}); });
  length = -4;
  expect_error(Status::kInvalidArgument, "length is -4", [&] { together.length(); });
}

TEST(Columns, SeveralThreadsReadAtOnce) {
  const RaggedDataset dataset = ragged();
  const std::string expected = json_of(dataset.batch({0, 2}, padding(0)));
  std::atomic<int> same{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int turn = 0; turn < 100; ++turn) same += json_of(dataset.batch({0, 2}, padding(0))) == expected;
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(same, 400);
}

}  // namespace columns_test
}  // namespace accel::data
