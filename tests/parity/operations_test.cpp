// SPDX-License-Identifier: Apache-2.0
// Functions on trees of tensors, against Accelerate's utils.operations.
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "fixture.hpp"
#include "tensor/dtype.hpp"
#include "tensor/tree.hpp"

namespace accel::parity {
namespace operations_test {

// As the header says: these two errors mean that there are no rows.
c10::IValue batch_size_or_none(const c10::IValue& data) {
  try {
    return tree::find_batch_size(data);
  } catch (const Error& error) {
    if (error.status() != Status::kInvalidArgument && error.status() != Status::kTypeMismatch) throw;
    return {};
  }
}

// A tensor of the device "meta" says what Accelerate's TensorInformation says.
c10::IValue data_structure(const c10::IValue& data) {
  const c10::IValue structure = tree::empty_tensors(data, at::kMeta);
  return tree::map_leaves(structure, [](const c10::IValue& leaf) -> c10::IValue {
    EXPECT_TRUE(leaf.toTensor().is_meta());
    return tree::new_map({{std::string("shape"), tree::shapes(leaf)},
                          {std::string("dtype"), std::string(tensor::dtype_name(leaf.toTensor().scalar_type()))}});
  });
}

c10::IValue call(const std::string& operation, const c10::IValue& input) {
  const auto data = optional_member(input, "data");
  if (operation == "slice_tensors")
    return tree::slice(*data, member(input, "start").toInt(), member(input, "stop").toInt());
  if (operation == "concatenate") return tree::concatenate(*data, member(input, "dim").toInt());
  if (operation == "listify") return tree::listify(*data);
  if (operation == "convert_to_fp32") return tree::convert_to_fp32(*data);
  if (operation == "find_batch_size") return tree::find_batch_size(*data);
  if (operation == "ignorant_find_batch_size") return batch_size_or_none(*data);
  if (operation == "get_data_structure") return data_structure(*data);
  ADD_FAILURE() << "the fixture has " << operation << ", which this test does not know";
  return {};
}

Status status_of(const std::string& reference_error) {
  if (reference_error == "TypeError") return Status::kTypeMismatch;
  if (reference_error == "ValueError") return Status::kInvalidArgument;
  EXPECT_TRUE(reference_error == "IndexError" || reference_error == "RuntimeError") << reference_error;
  return Status::kShapeMismatch;
}

TEST(OperationsParity, SameTreesAndErrorsAsTheReference) {
  for (const auto& [name, input, expected] : read_cases("operations")) {
    SCOPED_TRACE(name);
    const std::string operation = member(input, "operation").toStringRef();
    if (operation == "pad_input_tensors") continue;  // by itself below
    const auto error = error_type(expected);
    try {
      const c10::IValue result = call(operation, input);
      EXPECT_FALSE(error.has_value());
      EXPECT_TRUE(tree::equal(result, expected)) << tree::to_json(result);
    } catch (const Error& raised) {
      ASSERT_TRUE(error.has_value()) << raised.message();
      EXPECT_EQ(raised.status(), status_of(*error)) << raised.message();
    }
  }
}

// Accelerate adds too many rows, or too few, for many sizes. Where it adds the right number, that is ours.
TEST(OperationsParity, PadsToTheNextMultiple) {
  for (const auto& [name, input, expected] : read_cases("operations")) {
    if (member(input, "operation").toStringRef() != "pad_input_tensors") continue;
    SCOPED_TRACE(name);
    const int64_t rows = member(input, "rows").toInt(), processes = member(input, "processes").toInt();
    const at::Tensor tensor = at::ones({rows, member(input, "width").toInt()});
    const at::Tensor padded = tree::pad_to_multiple(tensor, processes, 0).toTensor();
    EXPECT_EQ(padded.size(0), (rows + processes - 1) / processes * processes);
    EXPECT_TRUE(at::equal(padded.narrow(0, 0, rows), tensor));
    EXPECT_EQ(padded.sum().item<int64_t>(), tensor.numel());
  }
}

}  // namespace operations_test
}  // namespace accel::parity
