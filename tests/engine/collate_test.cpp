// SPDX-License-Identifier: Apache-2.0
// How items become a batch.
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "data/collate.hpp"
#include "tensor/tree.hpp"

namespace accel::data {
namespace collate_test {

c10::IValue from_json(const std::string& json) { return tree::from_json(json, "test"); }

c10::IValue item_of(const at::Tensor& tensor, int64_t label) {
  auto item = tree::new_map();
  item.insert("tokens", tensor);
  item.insert("label", label);
  return item;
}

TEST(Collate, NumbersBecomeTensorsAndTextALists) {
  const auto batch = collate({}, {from_json(R"({"n": 1, "x": 0.5, "on": true, "name": "a", "pair": [1, 2]})"),
                                  from_json(R"({"n": 2, "x": 1.5, "on": false, "name": "b", "pair": [3, 4]})")});
  EXPECT_EQ(tree::to_json(tree::listify(batch)),
            R"({"n":[1,2],"x":[0.5,1.5],"on":[true,false],"name":["a","b"],"pair":[[1,3],[2,4]]})");
  EXPECT_EQ(batch.toGenericDict().at("n").toTensor().scalar_type(), at::kLong);
  EXPECT_EQ(batch.toGenericDict().at("x").toTensor().scalar_type(), at::kDouble);
}

// Regression: integers and floats in one batch were an error.
TEST(Collate, NumbersOfBothKindsBecomeFloatsAsInTorch) {
  const auto integer_first = collate({}, {from_json("1"), from_json("2.5")});
  EXPECT_EQ(tree::to_json(tree::listify(integer_first)), "[1.0,2.5]");
  EXPECT_EQ(integer_first.toTensor().scalar_type(), at::kFloat);
  const auto double_first = collate({}, {from_json("1.5"), from_json("2")});
  EXPECT_EQ(tree::to_json(tree::listify(double_first)), "[1.5,2.0]");
  EXPECT_EQ(double_first.toTensor().scalar_type(), at::kDouble);
}

TEST(Collate, PadsToTheLongestWithMasks) {
  Collation padded;
  padded.kind = Collation::Kind::kPad;
  padded.padding = {-1, 4, false, true};
  const auto batch = collate(padded, {item_of(at::arange(1, 4), 7), item_of(at::arange(1, 6), 8)});
  EXPECT_EQ(tree::to_json(tree::listify(batch)), R"({"tokens":[[1,2,3,-1,-1,-1,-1,-1],[1,2,3,4,5,-1,-1,-1]],)"
                                                 R"("tokens_mask":[[true,true,true,false,false,false,false,false],)"
                                                 R"([true,true,true,true,true,false,false,false]],"label":[7,8]})");
  padded.padding = {0, 1, true, false};
  const auto left = collate(padded, {at::arange(1, 3), at::arange(1, 4)});
  EXPECT_EQ(tree::to_json(tree::listify(left)), "[[0,1,2],[1,2,3]]");
}

TEST(Collate, NamesTheItemThatDoesNotFit) {
  const auto message = [](std::vector<c10::IValue> items) {
    try {
      collate({}, std::move(items));
    } catch (const Error& error) {
      return std::string(error.message());
    }
    return std::string("no error");
  };
  EXPECT_NE(message({at::ones({2}), at::ones({3})}).find("item 1 of the batch has shape [3]; expected [2]"),
            std::string::npos);
  EXPECT_NE(message({at::ones({2}), at::ones({2}, at::kLong)}).find("item 1 of the batch has dtype"),
            std::string::npos);
  EXPECT_NE(message({from_json(R"({"a": 1})"), from_json(R"({"b": 1})")}).find("lacks the key"), std::string::npos);
  EXPECT_NE(message({from_json("[1]"), from_json("[1, 2]")}).find("item 1 of the batch is not a list of 1"),
            std::string::npos);
  EXPECT_NE(message({}).find("0 items"), std::string::npos);
}

}  // namespace collate_test
}  // namespace accel::data
