// SPDX-License-Identifier: Apache-2.0
// Calls of operators by name.
#include "tensor/operators/operator.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "tensor/operators/operator_resolution.hpp"

namespace accel::tensor {
namespace operator_test {

using Arguments = std::vector<Argument>;
using Named = std::vector<NamedArgument>;

Argument list_of(const Arguments& items) {
  return Argument::list(items.data(), items.size(),
                        [](const void* list, size_t index) { return static_cast<const Argument*>(list)[index]; });
}

c10::Stack call(const char* name, const char* overload, const Arguments& arguments, const Named& named = {}) {
  return find_operator(name, overload).call(arguments.data(), arguments.size(), named.data(), named.size());
}

at::Tensor call_one(const char* name, const char* overload, const Arguments& arguments, const Named& named = {}) {
  return call(name, overload, arguments, named).at(0).toTensor();
}

template <typename Call>
void expect_failure(Call attempt, Status status, const std::vector<std::string>& parts) {
  try {
    attempt();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), status) << error.message();
    for (const std::string& part : parts) EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
    return;
  }
  ADD_FAILURE() << "no error; expected one with '" << parts.front() << "'";
}

TEST(Operator, IsFoundOnce) {
  const Operator& add = find_operator("aten::add", "Tensor");
  EXPECT_EQ(&add, &find_operator("aten::add", "Tensor"));
  EXPECT_EQ(add.name(), "aten::add.Tensor");
  EXPECT_EQ(add.schema(), "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor");
}

TEST(Operator, SuggestsWhatWasMeant) {
  expect_failure([] { find_operator("aten::add", "Tensr"); }, Status::kNotFound,
                 {"no overload 'Tensr'", "'Tensor'", "'Scalar'"});
  expect_failure([] { find_operator("aten::sofmax", ""); }, Status::kNotFound, {"did you mean", "aten::softmax"});
  expect_failure([] { find_operator("softmax", "int"); }, Status::kNotFound, {"did you mean aten::softmax"});
  find_operator("aten::add", "Tensor");
  expect_failure([] { find_operator("aten::add.Tensor", ""); }, Status::kNotFound, {"'aten::add'", "'Tensor'"});
  expect_failure([] { find_operator("", ""); }, Status::kNotFound, {"'aten::add'"});
  expect_failure([] { find_operator("aten::zzzzzzzzzzzzzz", ""); }, Status::kNotFound, {"such as"});
}

TEST(Operator, ListsNames) {
  const std::vector<std::string> names = operator_names("aten::add.");
  EXPECT_NE(std::find(names.begin(), names.end(), "aten::add.Tensor"), names.end());
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_TRUE(operator_names("nothing::").empty());
}

TEST(Operator, FillsDefaultsAndNames) {
  const at::Tensor a = at::ones({2}), b = at::full({2}, 3.0);
  EXPECT_TRUE(call_one("aten::add", "Tensor", {Argument::tensor(a), Argument::tensor(b)}).equal(at::full({2}, 4.0)));
  EXPECT_TRUE(call_one("aten::add", "Tensor", {Argument::tensor(a)},
                       {{"alpha", Argument::integer(2)}, {"other", Argument::tensor(b)}})
                  .equal(at::full({2}, 7.0)));
  EXPECT_TRUE(call_one("aten::add", "Scalar", {Argument::tensor(a), Argument::number(0.5)}).equal(at::full({2}, 1.5)));
  EXPECT_TRUE(call_one("aten::add", "Tensor", {Argument::tensor(a), Argument::tensor(b), Argument::number(0.5)})
                  .equal(at::full({2}, 2.5)));
}

TEST(Operator, ConvertsAsTheSchemaAsks) {
  const at::Tensor a = at::arange(6, at::kFloat).reshape({2, 3});
  const Arguments shape = {Argument::integer(3), Argument::integer(2)};
  EXPECT_EQ(call_one("aten::reshape", "", {Argument::tensor(a), list_of(shape)}).sizes(), (std::vector<int64_t>{3, 2}));

  const Arguments dims = {Argument::integer(-1)};
  const at::Tensor sums =
      call_one("aten::sum", "dim_IntList", {Argument::tensor(a), list_of(dims), Argument::boolean(true)},
               {{"dtype", Argument::string("fp64")}});
  EXPECT_EQ(sums.scalar_type(), at::kDouble);
  EXPECT_EQ(sums.sizes(), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(call_one("aten::sum", "dim_IntList", {Argument::tensor(a), Argument::integer(0)}).sizes(),
            (std::vector<int64_t>{3}));

  const at::Tensor zeros = call_one("aten::zeros", "", {list_of(shape)},
                                    {{"dtype", Argument::dtype(at::kBFloat16)},
                                     {"layout", Argument::string("strided")},
                                     {"device", Argument::string("cpu")},
                                     {"pin_memory", Argument::boolean(false)}});
  EXPECT_EQ(zeros.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(
      call_one("aten::zeros", "", {list_of(shape)}, {{"device", Argument::device(c10::DeviceType::Meta)}}).is_meta());

  // One number stands for all of an int[2].
  const at::Tensor images = at::ones({1, 1, 4, 4});
  EXPECT_EQ(call_one("aten::max_pool2d", "", {Argument::tensor(images), Argument::integer(2)}).sizes(),
            (std::vector<int64_t>{1, 1, 2, 2}));
  EXPECT_TRUE(
      call_one("aten::clone", "", {Argument::tensor(images)}, {{"memory_format", Argument::string("channels_last")}})
          .is_contiguous(at::MemoryFormat::ChannelsLast));

  const Arguments scales = {Argument::number(2), Argument::integer(2)};
  EXPECT_EQ(
      call_one("aten::upsample_nearest2d", "vec", {Argument::tensor(images), Argument(), list_of(scales)}).sizes(),
      (std::vector<int64_t>{1, 1, 8, 8}));
  EXPECT_EQ(call_one("aten::gelu", "", {Argument::tensor(a), Argument::string("tanh")}).sizes(), a.sizes());
  EXPECT_EQ(call_one("aten::dropout", "", {Argument::tensor(a), Argument::integer(0), Argument::boolean(true)}).sizes(),
            a.sizes());
}

TEST(Operator, TakesListsOfTensors) {
  const at::Tensor a = at::ones({2}), b = at::zeros({3});
  const Arguments tensors = {Argument::tensor(a), Argument::tensor(b)};
  EXPECT_EQ(call_one("aten::cat", "", {list_of(tensors)}).numel(), 5);

  const at::Tensor matrix = at::arange(6).reshape({2, 3}), columns = at::tensor({2, 0});
  const Arguments indices = {Argument(), Argument::tensor(columns)};
  EXPECT_TRUE(call_one("aten::index", "Tensor", {Argument::tensor(matrix), list_of(indices)})
                  .equal(at::tensor({2, 0, 5, 3}).reshape({2, 2})));

  const Arguments numbers = {Argument::integer(2), Argument::number(0.5)};
  const c10::Stack scaled = call("aten::_foreach_mul", "ScalarList", {list_of(tensors), list_of(numbers)});
  EXPECT_TRUE(scaled.at(0).toTensorVector().at(0).equal(at::full({2}, 2.0)));
}

TEST(Operator, SplitsResults) {
  const at::Tensor a = at::tensor({3.0, 1.0, 2.0}, at::kFloat);
  const c10::Stack sorted = call("aten::sort", "", {Argument::tensor(a)});
  ASSERT_EQ(sorted.size(), 2u);
  EXPECT_TRUE(sorted[1].toTensor().equal(at::tensor({1, 2, 0}, at::kLong)));
  EXPECT_EQ(find_operator("aten::sort", "").num_results(), 2u);

  // What was not asked for is undefined in LibTorch.
  const at::Tensor weight = at::ones({3});
  const Arguments shape = {Argument::integer(3)},
                  mask = {Argument::boolean(true), Argument::boolean(false), Argument::boolean(false)};
  const c10::Stack norm =
      call("aten::native_layer_norm", "",
           {Argument::tensor(a), list_of(shape), Argument::tensor(weight), Argument(), Argument::number(1e-5)});
  const c10::Stack gradients =
      call("aten::native_layer_norm_backward", "",
           {Argument::tensor(a), Argument::tensor(a), list_of(shape), Argument::tensor(norm[1].toTensor()),
            Argument::tensor(norm[2].toTensor()), Argument::tensor(weight), Argument(), list_of(mask)});
  EXPECT_TRUE(gradients.at(0).isTensor());
  EXPECT_TRUE(gradients.at(1).isNone());
}

TEST(Operator, ChangesItsArgumentsInPlace) {
  const at::Tensor a = at::ones({2}), out = at::empty({2});
  EXPECT_TRUE(call_one("aten::add_", "Scalar", {Argument::tensor(a), Argument::integer(1)}).is_same(a));
  call("aten::mul", "out", {Argument::tensor(a), Argument::tensor(a)}, {{"out", Argument::tensor(out)}});
  EXPECT_TRUE(out.equal(at::full({2}, 4.0)));
}

TEST(Operator, RecordsGradients) {
  const at::Tensor a = at::full({2}, 3.0).requires_grad_(true);
  call_one("aten::sum", "",
           {Argument::tensor(call_one("aten::mul", "Tensor", {Argument::tensor(a), Argument::tensor(a)}))})
      .backward();
  EXPECT_TRUE(a.grad().equal(at::full({2}, 6.0)));
}

TEST(Operator, NamesTheArgumentThatDoesNotFit) {
  const at::Tensor a = at::ones({2});
  const Argument tensor = Argument::tensor(a);
  const auto refuse = [](const char* name, const char* overload, const Arguments& arguments,
                         const std::vector<std::string>& parts) {
    expect_failure([&] { call(name, overload, arguments); }, Status::kTypeMismatch, parts);
  };
  refuse("aten::add", "Tensor", {tensor, Argument::integer(2)},
         {"aten::add.Tensor: argument 1 (other) is the integer 2; expected Tensor other"});
  refuse("aten::add", "Tensor", {tensor, tensor, Argument::string("x")},
         {"argument 2 (alpha) is the string 'x'", "Scalar alpha"});
  refuse("aten::add", "Tensor", {Argument(), tensor}, {"argument 0 (self) is none"});
  refuse("aten::reshape", "", {tensor, Argument::integer(2)}, {"argument 1 (shape)", "SymInt[] shape"});
  const Arguments shape = {Argument::integer(1), Argument::number(2.5)};
  refuse("aten::reshape", "", {tensor, list_of(shape)}, {"a list whose item 1 is the number 2.5"});
  refuse("aten::zeros", "", {list_of({}), Argument::string("float31")}, {"the string 'float31'", "ScalarType? dtype"});
  refuse("aten::zeros", "", {list_of({}), Argument::integer(7)}, {"the integer 7"});
  refuse("aten::zeros", "", {list_of({}), Argument(), Argument(), Argument::string("gpu")},
         {"the string 'gpu'", "Device? device"});
  refuse("aten::softmax", "int", {tensor, Argument::boolean(true)}, {"argument 1 (dim) is true", "int dim"});
  refuse("aten::softmax", "int", {tensor, Argument::map()}, {"argument 1 (dim) is a map"});
  refuse("aten::randn", "generator", {list_of({}), Argument::integer(1)}, {"argument 1 (generator)", "Generator?"});
}

TEST(Operator, ChecksTheNumberAndTheNames) {
  const at::Tensor a = at::ones({2});
  const Argument tensor = Argument::tensor(a);
  expect_failure([&] { call("aten::add", "Tensor", {tensor}); }, Status::kInvalidArgument,
                 {"lacks argument 1 (other)", "aten::add.Tensor("});
  expect_failure(
      [&] {
        call("aten::neg", "", {tensor, tensor});
      },
      Status::kInvalidArgument, {"2 arguments", "at most 1"});
  expect_failure(
      [&] {
        call("aten::neg", "", {tensor}, {{"beta", tensor}});
      },
      Status::kNotFound, {"no argument 'beta'"});
  expect_failure(
      [&] {
        call("aten::neg", "", {tensor}, {{"self", tensor}});
      },
      Status::kInvalidArgument, {"argument 0 (self) twice"});
  expect_failure(
      [&] {
        call("aten::neg", "", {}, {{"self", tensor}, {"self", tensor}});
      },
      Status::kInvalidArgument, {"twice"});
}

const std::string& resolved(const char* name, const Arguments& arguments, const Named& named = {}) {
  return resolve_operator(name, arguments.data(), arguments.size(), named.data(), named.size()).name();
}

TEST(OperatorResolution, ChoosesTheOverloadThatConvertsFewest) {
  const at::Tensor ones = at::ones({2, 2});
  const Argument x = Argument::tensor(ones), two = Argument::integer(2), half = Argument::number(0.5);
  const Arguments numbers{two, two}, tensors{x, x}, none{};
  const Argument int_list = list_of(numbers), tensor_list = list_of(tensors), empty_list = list_of(none);
  const struct {
    const char* name;
    Arguments arguments;
    Named named;
    const char* expected;
  } calls[] = {
      {"aten::add", {x, x}, {}, "aten::add.Tensor"},
      {"aten::add", {x, two}, {}, "aten::add.Scalar"},
      {"aten::add", {x, x}, {{"alpha", half}}, "aten::add.Tensor"},
      {"aten::add", {x, x}, {{"out", x}}, "aten::add.out"},
      {"add", {x, half}, {}, "aten::add.Scalar"},
      {"pow", {x, two}, {}, "aten::pow.Tensor_Scalar"},
      {"pow", {two, x}, {}, "aten::pow.Scalar"},
      {"sum", {x}, {}, "aten::sum"},
      {"sum", {x, two}, {}, "aten::sum.dim_IntList"},
      {"sum", {x, int_list, Argument::boolean(true)}, {}, "aten::sum.dim_IntList"},
      {"max", {x}, {}, "aten::max"},
      {"max", {x, two}, {}, "aten::max.dim"},
      {"max", {x, x}, {}, "aten::max.other"},
      {"max", {x}, {{"dim", two}}, "aten::max.dim"},
      {"any", {x, two}, {}, "aten::any.dim"},
      {"any", {x, int_list}, {}, "aten::any.dims"},
      {"to", {x, Argument::string("float64")}, {}, "aten::to.dtype"},
      {"to", {x, Argument::dtype(at::kDouble)}, {}, "aten::to.dtype"},
      {"to", {x, Argument::string("cpu"), Argument::string("float64")}, {}, "aten::to.device"},
      {"to", {x, x}, {}, "aten::to.other"},
      {"clamp", {x, two}, {}, "aten::clamp"},
      {"clamp", {x, Argument(), x}, {}, "aten::clamp.Tensor"},
      {"split", {x, two}, {}, "aten::split.Tensor"},
      {"split", {x, int_list}, {}, "aten::split.sizes"},
      {"cat", {tensor_list}, {}, "aten::cat"},
      {"cat", {tensor_list, two}, {}, "aten::cat"},
      {"softmax", {x, two}, {}, "aten::softmax.int"},
      {"arange", {two}, {}, "aten::arange"},
      {"arange", {two, two}, {}, "aten::arange.start"},
      {"arange", {two, two, two}, {}, "aten::arange.start_step"},
      {"normal", {half, half, int_list}, {}, "aten::normal.float_float"},
      {"div", {x, x}, {{"rounding_mode", Argument::string("floor")}}, "aten::div.Tensor_mode"},
      {"view", {x, empty_list}, {}, "aten::view"},
      {"std", {x}, {}, "aten::std"},
      {"round", {x}, {{"decimals", two}}, "aten::round.decimals"},
      {"where", {x, half, x}, {}, "aten::where.ScalarSelf"},
  };
  for (int time = 0; time < 2; ++time) {  // the second one is remembered
    for (const auto& call : calls) EXPECT_EQ(resolved(call.name, call.arguments, call.named), call.expected);
  }
}

TEST(OperatorResolution, SaysWhatThereIs) {
  const at::Tensor ones = at::ones({2});
  const Argument x = Argument::tensor(ones);
  expect_failure(
      [&] {
        resolved("aten::mm", {x, Argument::string("two")});
      },
      Status::kTypeMismatch,
      {"no overload of aten::mm takes (a tensor, the string 'two')", "expected one of aten::mm(Tensor self"});
  expect_failure([&] { resolved("aten::mm", {x, x}, {{"mat2", x}}); }, Status::kTypeMismatch, {"mat2=a tensor"});
  expect_failure([&] { resolved("aten::mm", {x, x}, {{"mat3", x}}); }, Status::kTypeMismatch, {"mat3=a tensor"});
  expect_failure(
      [&] {
        resolved("aten::add", {x, x, Argument::integer(1)});
      },
      Status::kTypeMismatch, {"aten::add.Tensor"});  // alpha has to be named
  expect_failure([&] { resolved("aten::sofmax", {x}); }, Status::kNotFound, {"did you mean aten::softmax"});
  expect_failure([&] { resolved("sofmax", {x}); }, Status::kNotFound, {"did you mean aten::softmax"});
}

}  // namespace operator_test
}  // namespace accel::tensor
