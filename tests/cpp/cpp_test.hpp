// SPDX-License-Identifier: Apache-2.0
// What every test of accel.hpp begins with: the header alone, and a fixture that expects all handles back.
#pragma once

#include <gtest/gtest.h>
#include <accel.hpp>

#include <string>
#include <vector>

// The Error of a call that must fail.
template <typename Call>
accel::Error error_of(Call call) {
  try {
    call();
  } catch (const accel::Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return accel::Error(ACCEL_OK, "nothing was thrown");
}

class CppTest : public testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(accel::debug_live_objects(), 0); }

  static accel::Tensor vector_of(const std::vector<float>& elements) {
    return accel::Tensor::from_data(elements.data(), {static_cast<std::int64_t>(elements.size())}, ACCEL_DTYPE_FLOAT32);
  }
  static std::string json_of(const accel::Tensor& tensor) { return accel::Value(tensor).to_json(); }
};
