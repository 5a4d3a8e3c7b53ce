// SPDX-License-Identifier: Apache-2.0
#include "cpp_test.hpp"
#include "no_memory.hpp"

namespace value_test {

using accel::Error;
using accel::Tensor;
using accel::Value;

class CppValue : public CppTest {};

TEST_F(CppValue, KeepsWhatCppTypesSay) {
  EXPECT_TRUE(Value().is_none());
  EXPECT_TRUE(Value(true).boolean());
  EXPECT_EQ(Value(7).integer(), 7);
  EXPECT_EQ(Value(std::int64_t{1} << 40).integer(), std::int64_t{1} << 40);
  EXPECT_EQ(Value(0.5f).number(), 0.5);
  EXPECT_EQ(Value(3).number(), 3.0);
  EXPECT_EQ(Value("text").string(), "text");
  EXPECT_EQ(Value(std::string("more text")).string(), "more text");
  EXPECT_EQ(Value::of_dtype(ACCEL_DTYPE_BFLOAT16).dtype(), ACCEL_DTYPE_BFLOAT16);
  EXPECT_EQ(Value(accel_device_t{ACCEL_DEVICE_CUDA, 1}).device().index, 1);
  const Tensor tensor = vector_of({4});
  EXPECT_EQ(Value(tensor).tensor().item(), 4.0);
}

TEST_F(CppValue, RefusesAnotherKind) {
  EXPECT_EQ(error_of([] { Value(1).string(); }).status(), ACCEL_ERROR_TYPE_MISMATCH);
  EXPECT_EQ(error_of([] { Value("1").number(); }).status(), ACCEL_ERROR_TYPE_MISMATCH);
  EXPECT_EQ(error_of([] { Value(1).push(2); }).status(), ACCEL_ERROR_TYPE_MISMATCH);
}

TEST_F(CppValue, BindsTheTensorsOfABatch) {
  const Value batch = Value::list({vector_of({1, 2}), vector_of({3})});
  const auto [inputs, labels] = batch.tensors<2>();
  EXPECT_EQ(json_of(inputs), "[1.0,2.0]");
  EXPECT_EQ(json_of(labels), "[3.0]");
  const Error other_number = error_of([&] { batch.tensors<3>(); });
  EXPECT_EQ(other_number.status(), ACCEL_ERROR_SHAPE_MISMATCH);
  EXPECT_STREQ(other_number.what(), "the value has 2 items; expected 3 tensors");
  EXPECT_EQ(error_of([&] { Value::list({vector_of({1}), 2}).tensors<2>(); }).status(), ACCEL_ERROR_TYPE_MISMATCH);
}

TEST_F(CppValue, NestsListsAndMaps) {
  Value settings = Value::map({{"lr", 0.5}, {"shape", Value::list({2, 3})}, {"name", "mlp"}});
  settings.set("on", true);
  EXPECT_EQ(settings.to_json(), R"({"lr":0.5,"shape":[2,3],"name":"mlp","on":true})");
  EXPECT_EQ(settings.size(), 4u);
  EXPECT_EQ(settings.key(1), "shape");
  EXPECT_EQ(settings.at("shape").at(1).integer(), 3);
  EXPECT_EQ(settings.find("missing"), std::nullopt);
  EXPECT_EQ(error_of([&] { settings.at("missing"); }).status(), ACCEL_ERROR_NOT_FOUND);
  EXPECT_EQ(error_of([&] { settings.at(4); }).status(), ACCEL_ERROR_NOT_FOUND);
  EXPECT_EQ(error_of([&] { settings.key(4); }).status(), ACCEL_ERROR_NOT_FOUND);
  Value items = Value::list({});
  for (const Value& item : settings.at("shape").items()) items.push(item.integer() * 10);
  EXPECT_EQ(items.to_json(), "[20,30]");
}

// Regression: `Value::key_at()` and `key()` of C++ said that there is no key where there was no memory.
TEST_F(CppValue, AMapWithoutMemoryIsNotEmpty) {
  const Value settings = Value::map({{"lr", 0.5}});
  const auto lacks_memory = [](auto&& call) {
    const NoMemory none;
    try {
      call();
      return false;
    } catch (const std::bad_alloc&) {
      return true;
    }
  };
  EXPECT_TRUE(lacks_memory([&] { settings.at(0); }));
  EXPECT_TRUE(lacks_memory([&] { settings.key_at(0); }));
  EXPECT_TRUE(lacks_memory([&] { settings.key(0); }));
  EXPECT_EQ(settings.key_at(0), Value("lr"));
}

TEST_F(CppValue, CopiesAndMoves) {
  Value first = Value::list({1, vector_of({2})});
  const Value copy = first;
  EXPECT_EQ(copy, first);
  Value moved = std::move(first);
  EXPECT_TRUE(first.is_none());
  EXPECT_EQ(moved, copy);
  moved.push("another");
  EXPECT_NE(moved, copy);
  moved = Value::from_json("[1, {\"a\": null}]");
  EXPECT_TRUE(moved.at(1).at("a").is_none());
  EXPECT_EQ(error_of([] { Value::from_json("[1,"); }).status(), ACCEL_ERROR_INVALID_ARGUMENT);
}

TEST_F(CppValue, TreesOfTensors) {
  const Value tree = Value::map({{"x", vector_of({1, 2, 3})}, {"label", "kept"}});
  EXPECT_EQ(accel::slice_tensors(tree, 1, 3).to_json(), R"({"x":[2.0,3.0],"label":"kept"})");
  EXPECT_EQ(accel::find_batch_size(tree), 3);
  const Value moved = accel::send_to_device(tree, {ACCEL_DEVICE_META, -1}, false, {"x"});
  EXPECT_EQ(moved.at("x").tensor().device().type, ACCEL_DEVICE_CPU);
  const Value both = accel::concatenate(Value::list({vector_of({1}), vector_of({2})}), 0);
  EXPECT_EQ(both.to_json(), "[1.0,2.0]");
}

}  // namespace value_test
