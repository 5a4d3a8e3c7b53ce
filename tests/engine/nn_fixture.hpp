// SPDX-License-Identifier: Apache-2.0
// What the module tests share: recorded numbers, and tensors that a formula gives in every language.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "expect_error.hpp"
#include "json/json.hpp"

namespace accel::tests {

inline std::string fixture_path(const std::string& name) { return std::string(ACCEL_TEST_FIXTURES) + "/" + name; }

inline Json read_fixture(const std::string& name) {
  std::ifstream file(fixture_path(name));
  EXPECT_TRUE(file.is_open()) << fixture_path(name);
  return parse_json(std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>()), name);
}

inline std::vector<double> numbers(const Json& list) {
  std::vector<double> values;
  for (const Json& item : *list.items()) values.push_back(item.number().value());
  return values;
}

inline std::vector<int64_t> integers(const Json& list) {
  const std::vector<double> values = numbers(list);
  return std::vector<int64_t>(values.begin(), values.end());
}

// Reads a text of hexadecimal digits.
inline std::string bytes_of(const Json& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.text()->size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.text()->substr(i, 2), nullptr, 16));
  return bytes;
}

inline at::Tensor tensor_of(const Json& list) { return at::tensor(numbers(list), at::kDouble); }

inline at::Tensor pattern_tensor(at::IntArrayRef shape, int64_t salt) {
  const int64_t count = c10::multiply_integers(shape);
  std::vector<double> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; i++)
    values[static_cast<size_t>(i)] = static_cast<double>((i * 37 + salt * 11) % 101 - 50) / 250;
  return at::tensor(values, at::kDouble).to(at::kFloat).reshape(shape);
}

inline void expect_close(const at::Tensor& actual, const at::Tensor& expected, double tolerance) {
  ASSERT_EQ(actual.numel(), expected.numel());
  EXPECT_LE((actual.detach().to(at::kDouble).flatten() - expected.to(at::kDouble).flatten()).abs().max().item<double>(),
            tolerance);
}

}  // namespace accel::tests
