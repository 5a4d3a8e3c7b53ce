// SPDX-License-Identifier: Apache-2.0
// A linear layer in 8-bit floating point computes on a device what it computes on the CPU, and the host waits for none
// of it.
#include "nn/low_precision/fp8_linear.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "device_fixture.hpp"

namespace accel::nn {
namespace fp8_linear_device_test {

class Fp8LinearDevice : public tests::DeviceTest {
 protected:
  static void expect_equal(const at::Tensor& found, const at::Tensor& expected) {
    EXPECT_TRUE(at::allclose(found.to(at::kCPU), expected, 1e-5, 1e-5));
  }
};

// Sizes that tensor cores take, and sizes that they do not.
TEST_F(Fp8LinearDevice, EqualsTheCpu) {
  for (const int64_t features : {32, 37}) {
    at::Tensor input = at::randn({2, 16, features}), weight = at::randn({48, features});
    const at::Tensor bias = at::randn({48}), gradient = at::randn({2, 16, 48});
    at::Tensor other_input = input.to(device()).requires_grad_(), other_weight = weight.to(device()).requires_grad_();
    input.requires_grad_();
    weight.requires_grad_();
    const at::Tensor output = fp8_linear(input, weight, bias, "HYBRID");
    const at::Tensor other = fp8_linear(other_input, other_weight, bias.to(device()), "HYBRID");
    expect_equal(other.detach(), output.detach());
    output.backward(gradient);
    other.backward(gradient.to(device()));
    expect_equal(other_input.grad(), input.grad());
    expect_equal(other_weight.grad(), weight.grad());
  }
}

TEST_F(Fp8LinearDevice, TheHostWaitsForNothing) {
  NEEDS_SIMULATION("counts of waits");
  at::Tensor input = at::randn({16, 32}, device()).requires_grad_(),
             weight = at::randn({48, 32}, device()).requires_grad_();
  const at::Tensor gradient = at::randn({16, 48}, device());
  const auto waits = [] {
    simulated_device_statistics statistics{};
    simulation().get_statistics(0, &statistics);
    return statistics.host_waits;
  };
  tensor::synchronize(device());
  const auto before = waits();
  fp8_linear(input, weight, {}, "HYBRID").backward(gradient);
  EXPECT_EQ(waits(), before);
}

TEST_F(Fp8LinearDevice, ZerosStayZeros) {
  const at::Tensor weight = at::randn({16, 32}, device());
  expect_equal(fp8_linear(at::zeros({4, 32}, device()), weight, {}, "HYBRID"), at::zeros({4, 16}));
}

}  // namespace fp8_linear_device_test
}  // namespace accel::nn
