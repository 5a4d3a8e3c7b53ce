// SPDX-License-Identifier: Apache-2.0
// Functions on nested values: what the C API cannot reach, and properties over random trees.
#include "tensor/tree.hpp"
#include "tensor/bytes.hpp"
#include "tensor/dtype_value.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "expect_error.hpp"
#include "tensor/bytes.hpp"

namespace accel::tree {
namespace tree_test {

template <typename Call>
void expect_fails(Call&& call, Status status, const std::string& part) {
  tests::expect_error(status, part, call);
}

c10::IValue list_of(const std::vector<c10::IValue>& items) {
  c10::List<c10::IValue> list = new_list();
  for (const c10::IValue& item : items) list.push_back(item);
  return list;
}

c10::IValue nested(int levels) {
  c10::IValue value = 1;
  for (int i = 0; i < levels; i++) value = list_of({value});
  return value;
}

class RandomTrees {
 public:
  explicit RandomTrees(uint32_t seed) : engine_(seed) {}

  c10::IValue next(int depth = 4) {
    switch (below(depth > 0 ? 8 : 6)) {
      case 0:
        return {};
      case 1:
        return below(2) == 1;
      case 2:
        return static_cast<int64_t>(bits());
      case 3:
        return random_double();
      case 4:
        return random_text();
      case 5:
        return static_cast<int64_t>(below(10));
      case 6: {
        c10::List<c10::IValue> list = new_list();
        for (uint64_t i = below(5); i > 0; i--) list.push_back(next(depth - 1));
        return list;
      }
      default: {
        c10::impl::GenericDict map = new_map();
        for (uint64_t i = below(5); i > 0; i--) map.insert_or_assign(random_text(), next(depth - 1));
        return map;
      }
    }
  }

 private:
  uint64_t bits() { return engine_(); }
  uint64_t below(uint64_t bound) { return bits() % bound; }

  double random_double() {
    double number = std::numeric_limits<double>::infinity();
    while (!std::isfinite(number)) {
      const uint64_t pattern = bits();
      std::memcpy(&number, &pattern, sizeof number);
    }
    return number;
  }

  std::string random_text() {
    static const std::vector<std::string> kChunks = {"a", "\"", "\\", "\n", "7", "-1.5", "é", "[", "}", "\x01"};
    std::string text;
    for (uint64_t i = below(6); i > 0; i--) text += kChunks[below(kChunks.size())];
    return text;
  }

  std::mt19937_64 engine_;
};

TEST(Tree, JsonRoundTripIsExact) {
  RandomTrees trees(20);
  for (int i = 0; i < 2000; i++) {
    const c10::IValue value = trees.next();
    const std::string json = to_json(value);
    EXPECT_TRUE(equal(from_json(json, "json"), value)) << json;
    EXPECT_EQ(to_json(from_json(json, "json")), json);
  }
}

TEST(Tree, JsonKeepsTheKindsOfNumbers) {
  EXPECT_EQ(to_json(1.0), "1.0");
  EXPECT_EQ(to_json(1), "1");
  EXPECT_TRUE(from_json("1.0", "json").isDouble());
  EXPECT_TRUE(from_json("1e3", "json").isDouble());
  EXPECT_TRUE(from_json("-1", "json").isInt());
  EXPECT_EQ(from_json("-9223372036854775808", "json").toInt(), std::numeric_limits<int64_t>::min());
}

TEST(Tree, JsonOfEqualKeysKeepsTheLast) { EXPECT_EQ(to_json(from_json(R"({"a": 1, "a": 2})", "json")), R"({"a":2})"); }

TEST(Tree, JsonRefusesWhatItCannotSay) {
  const double infinity = std::numeric_limits<double>::infinity();
  expect_fails([&] { to_json(infinity); }, Status::kTypeMismatch, "the number inf");
  expect_fails([&] { to_json(at::full({2}, infinity)); }, Status::kTypeMismatch, "the number inf");
  expect_fails([] { to_json(c10::IValue(c10::complex<double>(1, 2))); }, Status::kTypeMismatch, "ComplexDouble");
  expect_fails([] { from_json("[1", "config.json"); }, Status::kInvalidArgument, "config.json is not valid JSON");
}

TEST(Tree, NoFunctionFollowsTooDeepTrees) {
  const c10::IValue allowed = nested(kDeepest), deep = nested(kDeepest + 1);
  EXPECT_TRUE(equal(map_tensors(allowed, [](const at::Tensor& tensor) { return tensor; }), allowed));
  EXPECT_TRUE(equal(from_json(to_json(allowed), "json"), allowed));
  expect_fails([&] { for_each_leaf(deep, [](const c10::IValue&) {}); }, Status::kInvalidArgument, "levels deep");
  expect_fails([&] { listify(deep); }, Status::kInvalidArgument, "levels deep");
  expect_fails([&] { equal(deep, deep); }, Status::kInvalidArgument, "levels deep");
  expect_fails([&] { to_json(deep); }, Status::kInvalidArgument, "levels deep");
  expect_fails([&] { find_batch_size(deep); }, Status::kInvalidArgument, "levels deep");
  expect_fails([&] { concatenate(list_of({deep, deep}), 0); }, Status::kInvalidArgument, "levels deep");
}

TEST(Tree, ListsThatContainThemselvesAreRefused) {
  c10::List<c10::IValue> list = new_list();
  list.push_back(list);
  expect_fails([&] { listify(list); }, Status::kInvalidArgument, "levels deep");
  list.clear();
}

TEST(Tree, LeavesComeInOrder) {
  std::string seen;
  for_each_leaf(from_json(R"({"b": [1, [2]], "a": {"x": 3}, "c": []})", "json"),
                [&](const c10::IValue& leaf) { seen += std::to_string(leaf.toInt()); });
  EXPECT_EQ(seen, "123");
}

TEST(Tree, TuplesStayAndTypedListsBecomeLists) {
  const c10::IValue tuple = c10::ivalue::Tuple::create({at::ones({2}), c10::IValue(c10::List<int64_t>({1, 2}))});
  const c10::IValue mapped = map_tensors(tuple, [](const at::Tensor& tensor) { return tensor + 1; });
  EXPECT_TRUE(equal(mapped, new_tuple({at::full({2}, 2.0F), list_of({1, 2})})));
  EXPECT_FALSE(equal(mapped, list_of({at::full({2}, 2.0F), list_of({1, 2})})));
  EXPECT_TRUE(equal(concatenate(list_of({new_tuple({at::zeros({1})}), new_tuple({at::zeros({2})})}), 0),
                    new_tuple({at::zeros({3})})));
}

TEST(Tree, KeysAreStringsAndIntegers) {
  const auto ones = at::ones({1}), zeros = at::zeros({1});
  const c10::IValue mixed = new_map({{1, ones}, {std::string("1"), zeros}});
  const c10::IValue doubled = map_tensors(mixed, [](const at::Tensor& tensor) { return tensor * 2; });
  EXPECT_TRUE(equal(doubled, new_map({{1, ones * 2}, {std::string("1"), zeros}})));
  EXPECT_EQ(new_map({{1, ones}}).keyType()->kind(), c10::TypeKind::IntType);
  EXPECT_EQ(new_map({{std::string("a"), ones}}).keyType()->kind(), c10::TypeKind::StringType);
  EXPECT_EQ(new_map(std::vector<std::pair<c10::IValue, c10::IValue>>()).keyType()->kind(), c10::TypeKind::StringType);
  expect_fails([&] { to_json(mixed); }, Status::kTypeMismatch, "a map has a key of kind int; expected strings");
}

TEST(Tree, BytesAreALeaf) {
  const c10::IValue bytes = bytes_value(std::string("\0\xff", 2), "a/b");
  EXPECT_TRUE(equal(bytes, bytes_value(std::string("\0\xff", 2), "a/b")));
  EXPECT_FALSE(equal(bytes, bytes_value(std::string("\0\xff", 2), "")));
  EXPECT_FALSE(equal(bytes, bytes_value("", "a/b")));
  EXPECT_TRUE(equal(dtype_value(at::kHalf), dtype_value(at::kHalf)));
  EXPECT_FALSE(equal(dtype_value(at::kHalf), dtype_value(at::kFloat)));
  EXPECT_FALSE(equal(dtype_value(at::kHalf), static_cast<int64_t>(at::kHalf)));
  EXPECT_EQ(to_json(dtype_value(at::kHalf)), "\"float16\"");
  EXPECT_EQ(kind_name(bytes), "bytes");
  expect_fails([&] { to_json(bytes); }, Status::kTypeMismatch, "a value of kind bytes cannot be said in JSON");
}

TEST(Tree, UndefinedTensorsStay) {
  const c10::IValue value = list_of({at::Tensor(), at::ones({1})});
  const c10::IValue mapped = map_tensors(value, [](const at::Tensor& tensor) { return tensor * 3; });
  EXPECT_FALSE(mapped.toListRef()[0].toTensor().defined());
  EXPECT_TRUE(equal(mapped, list_of({at::Tensor(), at::full({1}, 3.0F)})));
}

TEST(Tree, NothingIsCalledWhenALeafIsNoTensor) {
  int calls = 0;
  const auto count = [&](const at::Tensor& tensor) { return calls++, tensor; };
  expect_fails(
      [&] {
        map_tensors_only(list_of({at::ones({1}), 2.5}), count);
      },
      Status::kTypeMismatch, "of kind double");
  EXPECT_EQ(calls, 0);
}

TEST(Tree, ListifyIsExact) {
  const auto largest = static_cast<int64_t>(std::numeric_limits<int64_t>::max());
  EXPECT_EQ(to_json(at::full({1, 1}, largest, at::kLong)), "[[9223372036854775807]]");
  EXPECT_EQ(to_json(at::ones({2, 0})), "[[],[]]");
  EXPECT_EQ(to_json(at::arange(6).view({2, 3}).t()), "[[0,3],[1,4],[2,5]]");
  EXPECT_EQ(listify(at::full({}, 0.1F)).toDouble(), static_cast<double>(0.1F));
  EXPECT_EQ(to_json(at::full({1}, 1.5, at::kFloat8_e5m2)), "[1.5]");
  EXPECT_EQ(to_json(at::full({1}, 7, at::kLong).to(at::kUInt64)), "[7]");
  expect_fails([] { listify(at::full({1}, -1, at::kLong).view(at::kUInt64)); }, Status::kTypeMismatch, "2^63");
  expect_fails([] { listify(at::ones({1}, at::kComplexFloat)); }, Status::kTypeMismatch, "ComplexFloat");
}

TEST(Tree, EqualComparesTensorsByTypeShapeAndElements) {
  const at::Tensor tensor = at::arange(4);
  // Qualified: at::equal would be found as well.
  EXPECT_TRUE(tree::equal(tensor, tensor.clone()));
  EXPECT_FALSE(tree::equal(tensor, tensor.to(at::kInt)));
  EXPECT_FALSE(tree::equal(tensor, tensor.view({2, 2})));
  EXPECT_FALSE(tree::equal(tensor, tensor + 1));
  EXPECT_FALSE(tree::equal(std::nan(""), std::nan("")));
}

TEST(Tree, JoiningRefusesTreesOfOtherStructure) {
  const at::Tensor one = at::ones({1});
  expect_fails(
      [&] {
        concatenate(list_of({list_of({one}), list_of({one, one})}), 0);
      },
      Status::kTypeMismatch, "1 items and one of 2");
  expect_fails(
      [&] {
        concatenate(list_of({from_json(R"({"a": 1})", "a"), from_json(R"({"b": 1})", "b")}), 0);
      },
      Status::kTypeMismatch, "key a");
  expect_fails(
      [&] {
        concatenate(list_of({at::ones({}), at::ones({})}), 0);
      },
      Status::kShapeMismatch, "without dimensions");
}

TEST(Tree, SkippedKeysStayOnEveryLevel) {
  c10::impl::GenericDict inner = new_map();
  inner.insert("stays", at::ones({1}));
  inner.insert("goes", at::ones({1}));
  const c10::IValue moved = send_to_device(list_of({inner}), at::kMeta, false, {"stays"});
  const c10::impl::GenericDict result = moved.toListRef()[0].toGenericDict();
  EXPECT_TRUE(result.at("stays").toTensor().is_cpu());
  EXPECT_TRUE(result.at("goes").toTensor().is_meta());
}

}  // namespace tree_test
}  // namespace accel::tree
