// Functions on trees of tensors, against the reference's utils.operations.
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "fixture.hpp"
#include "tensor/tree.hpp"

namespace accel::parity {
namespace operations_test {

// Nothing for the functions of the fixture that this library has under other names, or not at all.
std::optional<c10::IValue> call(const std::string& operation, const c10::IValue& input) {
  const auto data = optional_member(input, "data");
  if (operation == "slice_tensors")
    return tree::slice(*data, member(input, "start").toInt(), member(input, "stop").toInt());
  if (operation == "concatenate") return tree::concatenate(*data, member(input, "dim").toInt());
  if (operation == "listify") return tree::listify(*data);
  if (operation == "convert_to_fp32") return tree::convert_to_fp32(*data);
  if (operation == "find_batch_size") return tree::find_batch_size(*data);
  return std::nullopt;
}

Status status_of(const std::string& reference_error) {
  if (reference_error == "TypeError") return Status::kTypeMismatch;
  if (reference_error == "ValueError") return Status::kInvalidArgument;
  EXPECT_TRUE(reference_error == "IndexError" || reference_error == "RuntimeError") << reference_error;
  return Status::kShapeMismatch;
}

TEST(OperationsParity, SameTreesAndErrorsAsTheReference) {
  int compared = 0;
  for (const auto& [name, input, expected] : read_cases("operations")) {
    SCOPED_TRACE(name);
    const auto error = error_type(expected);
    try {
      const auto result = call(member(input, "operation").toStringRef(), input);
      if (!result) continue;
      EXPECT_FALSE(error.has_value());
      EXPECT_TRUE(tree::equal(*result, expected)) << tree::to_json(*result);
    } catch (const Error& raised) {
      ASSERT_TRUE(error.has_value()) << raised.message();
      EXPECT_EQ(raised.status(), status_of(*error)) << raised.message();
    }
    compared++;
  }
  EXPECT_GT(compared, 50);
}

// The reference adds too many rows, or too few, for many sizes.
TEST(OperationsParity, PadsAsTheReferenceWhereThatIsRight) {
  int agreed = 0;
  for (const auto& [name, input, expected] : read_cases("operations")) {
    if (member(input, "operation").toStringRef() != "pad_input_tensors") continue;
    SCOPED_TRACE(name);
    const int64_t rows = member(input, "rows").toInt(), processes = member(input, "processes").toInt();
    const at::Tensor tensor = at::ones({rows, member(input, "width").toInt()});
    const at::Tensor padded = tree::pad_to_multiple(tensor, processes, 0).toTensor();
    EXPECT_EQ(padded.size(0), (rows + processes - 1) / processes * processes);
    EXPECT_TRUE(at::equal(padded.narrow(0, 0, rows), tensor));
    EXPECT_EQ(padded.sum().item<int64_t>(), tensor.numel());
    const int64_t theirs = tree::sequence_items(expected)[0].toInt();
    if (theirs % processes != 0 || theirs - rows >= processes) continue;
    EXPECT_EQ(padded.size(0), theirs);
    agreed++;
  }
  EXPECT_GT(agreed, 5);
}

}  // namespace operations_test
}  // namespace accel::parity
