// SPDX-License-Identifier: Apache-2.0
// Sizes as people write them, and sizes of dtypes, against Accelerate.
#include <gtest/gtest.h>

#include "base/byte_size.hpp"
#include "base/error.hpp"
#include "fixture.hpp"
#include "tensor/dtype.hpp"

namespace accel::parity {
namespace byte_sizes_test {

void check_size(const Case& one) {
  const c10::IValue size = member(one.input, "size");
  if (!size.isString()) return;  // numbers are bytes already
  try {
    const int64_t bytes = parse_byte_size(size.toStringRef());
    ASSERT_FALSE(error_type(one.expected)) << "Accelerate refuses it";
    EXPECT_EQ(bytes, member(one.expected, "bytes").toInt());
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kInvalidArgument);
    EXPECT_TRUE(error_type(one.expected)) << error.message();
  }
}

TEST(ByteSizes, AsTheReference) {
  size_t sizes = 0, dtypes = 0;
  for (const Case& one : read_cases("sizes")) {
    SCOPED_TRACE(one.name);
    const std::string operation = member(one.input, "operation").toStringRef();
    if (operation == "convert_file_size_to_int") {
      check_size(one);
      sizes++;
    } else if (operation == "dtype_byte_size" &&
               member(one.input, "dtype").toStringRef() != "qint8") {  // no dtype of ours
      EXPECT_DOUBLE_EQ(tensor::dtype_byte_size(member(one.input, "dtype").toStringRef()),
                       member(one.expected, "bytes").toScalar().toDouble());
      dtypes++;
    }
  }
  EXPECT_GT(sizes, 10U);
  EXPECT_GT(dtypes, 5U);
}

}  // namespace byte_sizes_test
}  // namespace accel::parity
