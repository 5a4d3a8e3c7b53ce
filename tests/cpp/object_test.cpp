// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>

#include "cpp_test.hpp"

namespace object_test {

using accel::Error;
using accel::Mesh;
using accel::Module;
using accel::Op;
using accel::Scope;
using accel::State;
using accel::Tensor;
using accel::Value;

class CppObject : public CppTest {};

TEST_F(CppObject, CopiesAreOwnersOfOneHandle) {
  Tensor first = vector_of({1, 2});
  {
    const Tensor copy = first;
    EXPECT_EQ(copy.get(), first.get());
  }
  const Tensor moved = std::move(first);
  EXPECT_FALSE(first);
  EXPECT_EQ(json_of(moved), "[1.0,2.0]");
  Tensor assigned;
  assigned = moved;
  const Tensor& same = assigned;
  assigned = same;  // as an alias, which compilers do not see through
  accel_tensor_t* const handed_over = assigned.release();
  EXPECT_FALSE(assigned);
  const Tensor taken(handed_over);
  EXPECT_EQ(taken.numel(), 2);
}

TEST_F(CppObject, TensorsShareTheirElements) {
  const Tensor tensor = Tensor::from_data(std::vector<float>{1, 2, 3, 4}, {2, 2});
  EXPECT_EQ(tensor.shape(), (std::vector<std::int64_t>{2, 2}));
  for (float& element : tensor.span<float>()) element *= 2;
  const accel::Span<const float> elements = tensor.span<const float>();
  EXPECT_EQ(std::vector<float>(elements.begin(), elements.end()), (std::vector<float>{2, 4, 6, 8}));
  EXPECT_EQ(elements.size(), 4u);
  EXPECT_EQ(elements[3], 8);
  EXPECT_TRUE(accel::Span<int>().empty());
  EXPECT_EQ(error_of([&] { tensor.span<double>(); }).status(), ACCEL_ERROR_TYPE_MISMATCH);
  const Tensor transposed = Op::find("aten::t", "").call({tensor}).at(0).tensor();
  EXPECT_EQ(error_of([&] { transposed.span<float>(); }).status(), ACCEL_ERROR_INVALID_STATE);
}

TEST_F(CppObject, ElementsHaveTheDtypeOfTheirType) {
  EXPECT_EQ(Tensor::from_data(std::vector<double>{1}, {1}).dtype(), ACCEL_DTYPE_FLOAT64);
  EXPECT_EQ(Tensor::from_data(std::vector<std::int64_t>{1}, {1}).dtype(), ACCEL_DTYPE_INT64);
  EXPECT_EQ(Tensor::from_data(std::vector<long long>{1}, {1}).dtype(), ACCEL_DTYPE_INT64);
  EXPECT_EQ(Tensor::from_data(std::vector<std::int32_t>{1}, {1}).dtype(), ACCEL_DTYPE_INT32);
  EXPECT_EQ(Tensor::from_data(std::vector<std::uint16_t>{1}, {1}).dtype(), ACCEL_DTYPE_UINT16);
  EXPECT_EQ(Tensor::from_data(std::vector<std::uint8_t>{1}, {1}).dtype(), ACCEL_DTYPE_UINT8);
  EXPECT_EQ(Tensor::from_data(std::vector<float>{}, {0, 3}).numel(), 0);
  const Error error = error_of([] { Tensor::from_data(std::vector<float>{1, 2, 3}, {2, 2}); });
  EXPECT_EQ(error.status(), ACCEL_ERROR_SHAPE_MISMATCH);
  EXPECT_STREQ(error.what(), "there are 3 elements; expected the 4 of the shape");
}

TEST_F(CppObject, StateTellsItsPlace) {
  accel::StateOptions options;
  options.cpu = 1;
  options.gradient_accumulation_steps = 3;
  const State state = State::create(options);
  EXPECT_EQ(state.process_index(), 0);
  EXPECT_TRUE(state.is_main_process());
  EXPECT_FALSE(state.use_distributed());
  EXPECT_EQ(state.gradient_accumulation_steps(), 3);
  EXPECT_EQ(state.device().type, ACCEL_DEVICE_CPU);
  EXPECT_NE(state.describe().find("gradient_accumulation_steps"), std::string::npos);
  const auto [begin, end] = state.split_range(7);
  EXPECT_EQ(begin, 0);
  EXPECT_EQ(end, 7);
}

// Regression: with a newer library, the options of `accel.hpp` and of the Python module were written behind their end.
TEST_F(CppObject, OptionsAreUnsetAsTheProgramKnowsThem) {
  const accel::AdamOptions options;
  EXPECT_EQ(options.struct_size, sizeof options);
  EXPECT_EQ(options.lr, ACCEL_UNSET_DOUBLE);
  EXPECT_EQ(options.maximize, ACCEL_UNSET);
}

TEST_F(CppObject, DefaultStateIsShared) {
  EXPECT_FALSE(State::default_());
  State state = State::create();
  state.set_default();
  EXPECT_EQ(State::default_().get(), state.get());
  State().set_default();
  EXPECT_FALSE(State::default_());
}

TEST_F(CppObject, TensorsDescribeThemselves) {
  const Tensor tensor = Tensor::full({2, 3}, 1.5, ACCEL_DTYPE_FLOAT64, {ACCEL_DEVICE_CPU, -1});
  EXPECT_EQ(tensor.shape(), (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(tensor.strides(), (std::vector<std::int64_t>{3, 1}));
  EXPECT_EQ(tensor.dtype(), ACCEL_DTYPE_FLOAT64);
  EXPECT_EQ(tensor.nbytes(), 48u);
  EXPECT_TRUE(tensor.is_contiguous());
  EXPECT_FALSE(tensor.grad());
  EXPECT_TRUE(Tensor::empty({}, ACCEL_DTYPE_INT64, {ACCEL_DEVICE_CPU, -1}).shape().empty());
}

TEST_F(CppObject, BlobLivesAsLongAsItsTensors) {
  std::vector<float> memory = {1, 2, 3, 4};
  int ended = 0;
  {
    const Tensor transposed =
        Tensor::from_blob(memory.data(), {2, 2}, {1, 2}, ACCEL_DTYPE_FLOAT32, {ACCEL_DEVICE_CPU, -1}, [&] { ended++; });
    EXPECT_EQ(json_of(transposed), "[[1.0,3.0],[2.0,4.0]]");
    EXPECT_EQ(ended, 0);
  }
  EXPECT_EQ(ended, 1);
  const Error error = error_of([&] {
    Tensor::from_blob(memory.data(), {2, 2}, {1}, ACCEL_DTYPE_FLOAT32, {ACCEL_DEVICE_CPU, -1}, nullptr);
  });
  EXPECT_EQ(error.status(), ACCEL_ERROR_INVALID_ARGUMENT);
}

TEST_F(CppObject, OperatorsTakeArgumentsByPlaceAndByName) {
  const Op add = Op::find("aten::add", "Tensor");
  EXPECT_EQ(std::string(add.schema()).rfind("aten::add.Tensor(", 0), 0u);
  const std::vector<Value> sum = add.call({vector_of({1, 2}), vector_of({10, 20})}, {{"alpha", 2}});
  ASSERT_EQ(sum.size(), 1u);
  EXPECT_EQ(sum[0].to_json(), "[21.0,42.0]");
  const std::vector<Value> both = Op::find("aten::max", "dim").call({vector_of({3, 9}), 0});
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[1].to_json(), "1");
}

TEST_F(CppObject, ErrorsCarryTheirFields) {
  const Error error = error_of([] { Module::linear(-4, 1, true); });
  EXPECT_EQ(error.status(), ACCEL_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(error.function(), "accel_module_linear");
  EXPECT_EQ(error.rank(), -1);
  EXPECT_NE(std::string(error.what()).find("-4"), std::string::npos);
  EXPECT_EQ(error_of([] { Op::find("aten::no_such_operator", ""); }).status(), ACCEL_ERROR_NOT_FOUND);
}

TEST_F(CppObject, EmptyObjectsAreRefused) {
  EXPECT_THROW(State().wait_for_everyone(), Error);
  EXPECT_EQ(error_of([] { State().process_index(); }).status(), ACCEL_ERROR_INVALID_HANDLE);
  EXPECT_THROW(Tensor().shape(), Error);
  EXPECT_THROW(Op().schema(), Error);
  EXPECT_THROW(Value{Tensor()}, Error);
}

TEST_F(CppObject, ModelsHaveAdapters) {
  Module model = Module::from_config(
      R"({"model_type": "llama", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 6, "num_hidden_layers": 1,
          "num_attention_heads": 2})");
  const Value targets = Value::from_json(R"(["q_proj"])");
  accel::LoraOptions options;
  options.rank = 2;
  options.target_modules = targets.get();
  model.add_adapter("one", options);
  model.add_adapter("two");
  model.activate_adapters({"one"});
  EXPECT_EQ(model.adapters().at("one").at("layers").to_json(), R"(["model.layers.0.self_attn.q_proj"])");
  { const Scope both = accel::use_adapters({"one", "two"}); }
  model.merge_adapters();
  EXPECT_EQ(error_of([&] { model.remove_adapter("one"); }).status(), ACCEL_ERROR_INVALID_STATE);
  model.unmerge_adapters();
  model.remove_adapter("one");
  EXPECT_EQ(error_of([&] { model.activate_adapters({"one"}); }).status(), ACCEL_ERROR_NOT_FOUND);
}

TEST_F(CppObject, ScopesEndInReverseOrder) {
  State state = State::create();
  {
    const Scope no_grad = accel::no_grad();
    const Scope enable_grad = accel::enable_grad();
    const Scope autocast = state.autocast();
  }
  Scope outer = accel::no_grad();
  {
    Scope inner = accel::enable_grad();
    EXPECT_EQ(error_of([&] { outer.end(); }).status(), ACCEL_ERROR_INVALID_STATE);
    inner.end();
    inner.end();  // it has ended: nothing happens
  }
  outer.end();
}

TEST_F(CppObject, ScopeThrowsUnlessAnotherExceptionEndsIt) {
  for (const bool throws : {false, true}) {
    Scope inner;
    accel_scope_t* still_open = nullptr;
    const auto end_outer_first = [&] {
      Scope outer = accel::no_grad();
      still_open = *outer.put();
      EXPECT_EQ(accel_enable_grad_begin(inner.put()), ACCEL_OK);
      if (throws) throw std::logic_error("mine");
    };
    if (throws)
      EXPECT_THROW(end_outer_first(), std::logic_error);
    else
      EXPECT_EQ(error_of(end_outer_first).status(), ACCEL_ERROR_INVALID_STATE);
    inner.end();
    EXPECT_EQ(accel_scope_end(still_open), ACCEL_OK);
  }
}

TEST_F(CppObject, VersionIsThatOfTheHeader) {
  const auto [major, minor, patch] = accel::version();
  EXPECT_EQ(major, ACCEL_VERSION_MAJOR);
  EXPECT_EQ(minor, ACCEL_VERSION_MINOR);
  EXPECT_EQ(patch, ACCEL_VERSION_PATCH);
  EXPECT_NE(accel::build_info().find("libtorch"), std::string::npos);
}

TEST_F(CppObject, AMeshNamesRanks) {
  State state = State::create();
  Mesh mesh = state.mesh();
  EXPECT_EQ(mesh.size("replicate,shard"), 1);
  EXPECT_EQ(mesh.group("tensor").num_processes(), 1);
  Mesh own = Mesh::create(state, "replica,expert", {1, 1});
  EXPECT_EQ(own.coordinate("expert"), 0);
  EXPECT_EQ(own.describe(), "replica 1, expert 1; this rank is at 0, 0");
}

}  // namespace object_test
