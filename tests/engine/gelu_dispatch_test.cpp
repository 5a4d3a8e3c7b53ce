// SPDX-License-Identifier: Apache-2.0
// GELU of our calls against LibTorch's: as exact, in every layout, and only inside of our calls.
#include "kernels/gelu_dispatch.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "kernels/compute_policy.hpp"
#include "kernels/gelu_kernels.hpp"
#include "kernels/instruction_set.hpp"

namespace accel::kernels {
namespace gelu_dispatch_test {

constexpr ComputePolicy kTuned{true, false};
constexpr const char* kApproximations[] = {"none", "tanh"};

class GeluDispatch : public testing::Test {
 protected:
  void SetUp() override { install_gelu_dispatch(); }
};

// The largest error against float64, in units of the largest of the values around.
double error(const at::Tensor& found, const at::Tensor& exact) {
  return ((found.to(at::kDouble) - exact) / (exact.abs() + 1)).abs().max().item<double>();
}

TEST_F(GeluDispatch, IsExactBothWays) {
  at::manual_seed(1);
  const at::Tensor inputs = at::linspace(-12, 12, 100003, at::kFloat);
  for (const char* approximate : kApproximations) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const at::Tensor input = inputs.to(dtype), gradient = at::randn_like(inputs).to(dtype);
      const at::Tensor exact = at::gelu(input.to(at::kDouble), approximate);
      const at::Tensor exact_gradient = at::gelu_backward(gradient.to(at::kDouble), input.to(at::kDouble), approximate);
      const ComputeScope scope(kTuned);
      const at::Tensor found = at::gelu(input, approximate);
      const double rounding = dtype == at::kFloat ? 4e-7 : dtype == at::kHalf ? 1e-3 : 8e-3;
      EXPECT_EQ(found.scalar_type(), dtype);
      EXPECT_LE(error(found, exact), rounding) << approximate << dtype;
      EXPECT_LE(error(at::gelu_backward(gradient, input, approximate), exact_gradient), rounding)
          << approximate << dtype;
    }
  }
}

TEST_F(GeluDispatch, CarriesNanAndInfinity) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {infinity, -infinity, std::numeric_limits<float>::quiet_NaN(), 0, -0.0F, 1e38F};
  const at::Tensor input = at::tensor(values), ones = at::tensor(std::vector<float>(values.size(), 1));
  for (const char* approximate : kApproximations) {
    const ComputeScope scope(kTuned);
    const at::Tensor found = at::gelu(input, approximate);
    for (const int64_t same : {0, 3, 4, 5}) {
      if (same == 0 && fastest_instruction_set() == InstructionSet::kBaseline) continue;  // NaN in LibTorch's kernel
      EXPECT_EQ(found[same].item<float>(), values[static_cast<size_t>(same)]) << approximate;
    }
    EXPECT_TRUE(found[2].isnan().item<bool>());
    EXPECT_EQ(at::gelu_backward(ones, input, approximate)[3].item<float>(), 0.5F);
    EXPECT_TRUE(at::gelu_backward(ones, input, approximate)[2].isnan().item<bool>());
  }
}

TEST_F(GeluDispatch, KeepsLayouts) {
  const at::Tensor transposed = at::randn({30, 40}).t(), gaps = at::randn({30, 40}).slice(1, 0, 20);
  const at::Tensor normal = at::gelu(transposed), normal_gaps = at::gelu(gaps);
  const at::Tensor gradient = at::randn({40, 30});
  const at::Tensor normal_gradient = at::gelu_backward(gradient, transposed);
  const ComputeScope scope(kTuned);
  EXPECT_EQ(at::gelu(transposed).strides(), normal.strides());
  EXPECT_TRUE(at::allclose(at::gelu(transposed), normal, 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(at::gelu(gaps), normal_gaps, 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(at::gelu_backward(gradient, transposed), normal_gradient, 1e-5, 1e-6));
  EXPECT_EQ(at::gelu(at::randn({0})).numel(), 0);
}

TEST_F(GeluDispatch, WrongNamesHaveTheErrorOfTheDefault) {
  const auto message = [](bool tuned) {
    const ComputeScope scope({tuned, false});
    try {
      at::gelu(at::randn({4}), "sigmoid");
    } catch (const c10::Error& error) {
      return std::string(error.what_without_backtrace());
    }
    return std::string();
  };
  EXPECT_NE(message(true), "");
  EXPECT_EQ(message(true), message(false));
}

TEST_F(GeluDispatch, ActsInsideOurCallsOnly) {
  if (fastest_instruction_set() == InstructionSet::kBaseline) GTEST_SKIP() << "LibTorch's kernel on this processor";
  at::manual_seed(2);
  const at::Tensor input = at::randn({10000});
  const at::Tensor normal = at::gelu(input);
  {
    const ComputeScope scope(kTuned);
    EXPECT_FALSE(at::gelu(input).equal(normal));
  }
  EXPECT_TRUE(at::gelu(input).equal(normal));
}

}  // namespace gelu_dispatch_test
}  // namespace accel::kernels
