// SPDX-License-Identifier: Apache-2.0
// The norm in one pass against its operators, for every dtype and kind of weight, and which tensors it leaves to them.
#include "kernels/rms_norm.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <limits>

namespace accel::kernels {
namespace {

constexpr double kEpsilon = 1e-5;

// In float64, but for what is rounded to the dtype.
at::Tensor composed(const at::Tensor& input, const at::Tensor& weight, NormWeight kind) {
  const at::Tensor values = input.to(at::kDouble);
  at::Tensor normal = values * (values.pow(2).mean(-1, true) + kEpsilon).rsqrt();
  if (kind == NormWeight::kRoundedBefore) normal = normal.to(input.scalar_type()).to(at::kDouble);
  return normal * (kind == NormWeight::kAddsOne ? weight.to(at::kDouble) + 1 : weight.to(at::kDouble));
}

// A value that is rounded to the other neighbour before the weight, and the rounding behind it.
double tolerance(at::ScalarType dtype) { return dtype == at::kFloat ? 1e-6 : dtype == at::kHalf ? 0x1p-9 : 0x1p-6; }

TEST(RmsNorm, IsThatOfTheOperators) {
  at::manual_seed(3);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const NormWeight kind : {NormWeight::kPlain, NormWeight::kRoundedBefore, NormWeight::kAddsOne})
      for (const int64_t size : {1, 5, 16, 100, 1024}) {
        const at::Tensor input = (at::randn({2, 37, size}) * 3).to(dtype), weight = at::randn({size}).to(dtype);
        ASSERT_TRUE(can_rms_norm(input, weight)) << dtype;
        const at::Tensor found = rms_norm(input, weight, kEpsilon, kind);
        EXPECT_EQ(found.scalar_type(), dtype);
        EXPECT_TRUE(at::allclose(found.to(at::kDouble), composed(input, weight, kind), tolerance(dtype), 1e-6))
            << dtype << " " << size;
      }
}

TEST(RmsNorm, CarriesWhatIsNotFinite) {
  at::Tensor input = at::randn({3, 40});
  input[1][7] = std::numeric_limits<float>::quiet_NaN();
  input[2][7] = std::numeric_limits<float>::infinity();
  const at::Tensor found = rms_norm(input, at::randn({40}), kEpsilon, NormWeight::kPlain);
  EXPECT_TRUE(found[0].isfinite().all().item<bool>());
  EXPECT_TRUE(found[1].isnan().all().item<bool>());
  EXPECT_TRUE(found[2][7].isnan().item<bool>());
}

TEST(RmsNorm, LeavesOtherTensorsToTheOperators) {
  const at::Tensor input = at::randn({4, 8}), weight = at::randn({8});
  EXPECT_FALSE(can_rms_norm(input, at::randn({7}))) << "another size";
  EXPECT_FALSE(can_rms_norm(input, at::randn({1}))) << "a weight that is repeated";
  EXPECT_FALSE(can_rms_norm(input.to(at::kDouble), weight.to(at::kDouble)));
  EXPECT_FALSE(can_rms_norm(input.to(at::kBFloat16), weight)) << "two dtypes";
  EXPECT_FALSE(can_rms_norm(at::randn({8, 4}).t(), weight)) << "not dense";
  EXPECT_FALSE(can_rms_norm(at::randn({0, 8}), weight));
  const at::Tensor trained = at::randn({8}).set_requires_grad(true);
  EXPECT_FALSE(can_rms_norm(input, trained));
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(can_rms_norm(input, trained));
}

}  // namespace
}  // namespace accel::kernels
