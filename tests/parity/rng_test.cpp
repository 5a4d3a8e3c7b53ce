// SPDX-License-Identifier: Apache-2.0
// What the CPU's default generator gives after a seed.
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <mutex>

#include "accelerator_ranks.hpp"
#include "fixture.hpp"

namespace accel::parity {
namespace rng_test {

at::Tensor numbers(const c10::IValue& list) {
  std::vector<double> values;
  for (const auto& item : list.toListRef()) values.push_back(item.toScalar().toDouble());
  return at::tensor(values, at::kDouble);
}

// The draws in the order of the fixture, which counts.
void check_draws(const c10::IValue& expected) {
  const auto same = [&](const char* name, const at::Tensor& drawn, double tolerance) {
    EXPECT_TRUE(at::allclose(drawn.to(at::kDouble), numbers(member(expected, name)), tolerance, tolerance))
        << name << " " << drawn;
  };
  constexpr double kNineDigits = 1e-8;
  same("rand", at::rand({8}), kNineDigits);
  same("randn", at::randn({8}), kNineDigits);
  same("randn_20_first", at::randn({20}).slice(0, 0, 4), kNineDigits);
  same("rand_float64", at::rand({3}, at::kDouble), 0);
  same("randint_0_1000", at::randint(0, 1000, {8}, at::kLong), 0);
  same("randperm_12", at::randperm(12), 0);
  same("bernoulli_0.3", at::bernoulli(at::full({10}, 0.3)), 0);
}

TEST(RngParity, SameDrawsAsTheReference) {
  int compared = 0;
  std::mutex one_at_a_time;  // the ranks of this process share the default generator
  for (const auto& test_case : read_cases("rng")) {
    SCOPED_TRACE(test_case.name);
    const c10::IValue& input = test_case.input;
    const auto processes = optional_member(input, "processes");
    const int64_t rank = member(input, "rank").toInt();
    tests::run_accelerators(
        processes ? static_cast<int>(processes->toInt()) : 1, {}, [&](const tests::AcceleratorPtr& accelerator) {
          if (accelerator->state().process_index() != rank) return;
          const std::lock_guard<std::mutex> lock(one_at_a_time);
          accelerator->randomness().set_seed(member(input, "seed").toInt(), member(input, "device_specific").toBool());
          check_draws(test_case.expected);
        });
    compared++;
  }
  EXPECT_GT(compared, 20);
}

}  // namespace rng_test
}  // namespace accel::parity
