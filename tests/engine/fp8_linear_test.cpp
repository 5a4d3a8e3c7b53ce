// SPDX-License-Identifier: Apache-2.0
// The operator accel::fp8_linear: its definition, gradients, what it keeps, and what it refuses.
#include "nn/low_precision/fp8_linear.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>
#include <string>

#include "config/generated/choices/precision.hpp"
#include "expect_error.hpp"
#include "precision/autocast.hpp"

namespace accel::nn {
namespace fp8_linear_test {

using tests::expect_error;

// Cast with one scale, and back.
at::Tensor rounded(const at::Tensor& values, at::ScalarType format) {
  const float largest = format == at::kFloat8_e4m3fn ? 448 : 57344;
  const float scale = largest / values.abs().max().to(at::kFloat).item<float>();
  return (values.to(at::kFloat) * scale).clamp(-largest, largest).to(format).to(at::kFloat) * (1 / scale);
}

double relative_error(const at::Tensor& found, const at::Tensor& expected) {
  return (found.to(at::kFloat) - expected).norm().item<double>() / expected.norm().item<double>();
}

TEST(Fp8Linear, EqualsTheDefinition) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor input = at::randn({3, 5, 40}).to(dtype).requires_grad_(),
                     weight = at::randn({24, 40}).requires_grad_();
    const at::Tensor bias = at::randn({24}).requires_grad_(), gradient = at::randn({3, 5, 24}).to(dtype);
    const at::Tensor output = fp8_linear(input, weight, bias, "HYBRID");
    EXPECT_EQ(output.scalar_type(), dtype);
    const double tolerance = dtype == at::kFloat ? 1e-6 : 4e-3;  // of one rounding
    const at::Tensor x = rounded(input.detach(), at::kFloat8_e4m3fn), w = rounded(weight.detach(), at::kFloat8_e4m3fn);
    EXPECT_LT(relative_error(output.detach(), at::linear(x, w, bias.detach())), tolerance);
    output.backward(gradient);
    const at::Tensor g = rounded(gradient, at::kFloat8_e5m2).reshape({15, 24});
    EXPECT_LT(relative_error(input.grad(), g.matmul(w).view_as(input)), tolerance);
    EXPECT_LT(relative_error(weight.grad(), g.t().matmul(x.reshape({15, 40}))), 1e-6);
    EXPECT_LT(relative_error(bias.grad(), gradient.to(at::kFloat).sum({0, 1})), 1e-6);
    EXPECT_EQ(input.grad().scalar_type(), dtype);
  }
}

TEST(Fp8Linear, AutocastChoosesTheDtypeOfTheResult) {
  const at::Tensor input = at::randn({4, 32}), weight = at::randn({16, 32});
  const at::Tensor plain = fp8_linear(input, weight, {}, "HYBRID");
  const precision::AutocastGuard autocast(Precision::kBf16, c10::DeviceType::CPU);
  const at::Tensor output = fp8_linear(input, weight, {}, "HYBRID");
  EXPECT_TRUE(at::equal(output, plain.to(at::kBFloat16)));
}

TEST(Fp8Linear, KeepsAByteAnElement) {
  const at::Tensor input = at::randn({64, 128}).requires_grad_(), weight = at::randn({32, 128}).requires_grad_();
  const at::Tensor output = fp8_linear(input, weight, {}, "HYBRID");
  const auto node = output.grad_fn();
  ASSERT_NE(node, nullptr);
  EXPECT_EQ(node->name(), "Fp8LinearBackward");
  // Neither the input nor the weight is kept.
  EXPECT_EQ(input.storage().use_count(), 1u);
  EXPECT_EQ(weight.storage().use_count(), 1u);
}

TEST(Fp8Linear, ZerosInfinitiesAndNanStayWhatTheyAre) {
  const at::Tensor weight = at::randn({16, 16});
  EXPECT_TRUE(at::equal(fp8_linear(at::zeros({2, 16}), weight, {}, "HYBRID"), at::zeros({2, 16})));
  EXPECT_TRUE(at::equal(fp8_linear(at::full({2, 16}, 1e-45f), weight, {}, "E4M3"), at::zeros({2, 16})));
  at::Tensor input = at::randn({2, 16});
  input[0][3] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor output = fp8_linear(input, weight, {}, "HYBRID");
  EXPECT_TRUE(output[0].isnan().all().item<bool>());
  EXPECT_FALSE(output[1].isnan().any().item<bool>());
  input[0][3] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(fp8_linear(input, weight, {}, "HYBRID").isfinite().all().item<bool>()) << "the largest number";
}

TEST(Fp8Linear, EmptyTensors) {
  const at::Tensor weight = at::randn({3, 4}).requires_grad_(), bias = at::randn({3});
  const at::Tensor output = fp8_linear(at::empty({0, 2, 4}), weight, bias, "HYBRID");
  EXPECT_EQ(output.sizes(), (std::vector<int64_t>{0, 2, 3}));
  output.sum().backward();
  EXPECT_TRUE(at::equal(weight.grad(), at::zeros({3, 4})));
  EXPECT_TRUE(at::equal(fp8_linear(at::empty({2, 0}), at::empty({3, 0}), bias, "HYBRID"), bias.expand({2, 3})));
}

TEST(Fp8Linear, OneDimension) {
  const at::Tensor input = at::randn({8}), weight = at::randn({3, 8});
  EXPECT_TRUE(
      at::equal(fp8_linear(input, weight, {}, "HYBRID"), fp8_linear(input.unsqueeze(0), weight, {}, "HYBRID")[0]));
}

// A regression learns as in float32.
TEST(Fp8Linear, Trains) {
  const at::Tensor input = at::randn({256, 32}), truth = input.matmul(at::randn({32, 8})).tanh();
  const auto loss_after = [&](bool small) {
    at::Tensor first = (at::randn({64, 32}, at::make_generator<at::CPUGeneratorImpl>(1)) / 6).requires_grad_();
    at::Tensor second = (at::randn({8, 64}, at::make_generator<at::CPUGeneratorImpl>(2)) / 8).requires_grad_();
    const auto layer = [&](const at::Tensor& x, const at::Tensor& w) {
      return small ? fp8_linear(x, w, {}, "HYBRID") : at::linear(x, w);
    };
    double last = 0;
    for (int step = 0; step < 200; step++) {
      const at::Tensor loss = at::mse_loss(layer(layer(input, first).tanh(), second), truth);
      loss.backward();
      last = loss.item<double>();
      const at::NoGradGuard no_grad;
      for (at::Tensor* weight : {&first, &second}) {
        weight->sub_(weight->grad(), 0.5);
        weight->mutable_grad() = at::Tensor();
      }
    }
    return last;
  };
  const double exact = loss_after(false), small = loss_after(true);
  EXPECT_LT(small, exact * 1.1 + 0.005);
}

TEST(Fp8Linear, RefusesWrongArguments) {
  const at::Tensor input = at::randn({2, 4}), weight = at::randn({3, 4});
  expect_error(Status::kInvalidArgument, "format is \"fp8\"; expected \"HYBRID\", \"E4M3\" or \"E5M2\"",
               [&] { fp8_linear(input, weight, {}, "fp8"); });
  expect_error(Status::kShapeMismatch, "input has shape [2, 4] and weight [3, 5]", [&] {
    fp8_linear(input, at::randn({3, 5}), {}, "HYBRID");
  });
  expect_error(Status::kShapeMismatch, "bias has shape [4]",
               [&] { fp8_linear(input, weight, at::randn({4}), "HYBRID"); });
  expect_error(Status::kTypeMismatch, "input is float64",
               [&] { fp8_linear(input.to(at::kDouble), weight, {}, "HYBRID"); });
  const at::Tensor own = at::randn({2, 4}).requires_grad_();
  const at::Tensor output = fp8_linear(own, weight, {}, "HYBRID");
  const auto gradients = torch::autograd::grad({output.square().sum()}, {own}, {}, true, /*create_graph=*/true);
  expect_error(Status::kUnsupported, "accel::fp8_linear has no second derivative",
               [&] { gradients[0].sum().backward(); });
}

}  // namespace fp8_linear_test
}  // namespace accel::nn
