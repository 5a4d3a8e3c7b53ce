// SPDX-License-Identifier: Apache-2.0
// The operators of quantized linear layers of the program: tensors, scales, products, gradients, and what they refuse.
#include "nn/quantized/quantized_linear.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "architecture_fixture.hpp"
#include "expect_error.hpp"

namespace accel::nn {
namespace quantized_linear_test {

using tests::expect_error;

struct Layer {
  std::string kind;
  std::vector<at::Tensor> tensors;
  std::vector<std::string> names;
  at::Tensor scales;
  std::vector<int64_t> sizes;
  int64_t group = 0;

  at::Tensor operator()(const at::Tensor& input, const std::optional<at::Tensor>& bias = {}, double threshold = 0,
                        std::optional<at::ScalarType> dtype = at::kFloat) const {
    return quantized_linear(input, tensors[0], scales, bias, kind, sizes, group, threshold, dtype);
  }
};

Layer layer_of(const at::Tensor& weight, const std::string& kind, bool is_double = false) {
  Layer layer;
  layer.kind = kind;
  std::tie(layer.tensors, layer.names) = quantize_named_matrix(weight, kind, is_double, "layer.weight");
  std::tie(layer.scales, layer.sizes, layer.group) = quantized_scales(layer.tensors, layer.names);
  return layer;
}

// Numbers that repeat in no block.
at::Tensor numbers_of(at::IntArrayRef sizes, int64_t seed) { return tests::weight_of("quantized", sizes, seed); }

double distance(const at::Tensor& found, const at::Tensor& expected) {
  return (found - expected).norm().item<double>() / expected.norm().item<double>();
}

TEST(QuantizedLinear, MultipliesWithTheDecodedWeight) {
  for (const bool is_double : {false, true}) {
    for (const char* kind : {"nf4", "fp4", "int8"}) {
      if (is_double && std::string(kind) == "int8") continue;
      const at::Tensor weight = numbers_of({24, 128}, 3), bias = numbers_of({24}, 5).requires_grad_();
      const Layer layer = layer_of(weight, kind, is_double);
      const at::Tensor decoded = layer(at::eye(128)).t();
      EXPECT_LT(distance(decoded, weight), std::string(kind) == "int8" ? 0.01 : 0.15) << kind;
      const at::Tensor input = numbers_of({2, 3, 128}, 7).requires_grad_();
      const at::Tensor output = layer(input, bias);
      EXPECT_LT(distance(output.detach(), at::linear(input.detach(), decoded, bias.detach())), 2e-3) << kind;
      output.backward(numbers_of({2, 3, 24}, 9));
      EXPECT_LT(distance(input.grad(), numbers_of({2, 3, 24}, 9).matmul(decoded)), 2e-3) << kind;
      EXPECT_LT(distance(bias.grad(), numbers_of({2, 3, 24}, 9).sum({0, 1})), 1e-5) << kind;
    }
  }
}

TEST(QuantizedLinear, HasTheTensorsOfBitsandbytes) {
  const Layer twice = layer_of(numbers_of({4, 64}, 3), "nf4", true),
              rows = layer_of(numbers_of({4, 64}, 3), "llm_int8");
  EXPECT_EQ(twice.names,
            (std::vector<std::string>{"weight", "weight.absmax", "weight.quant_map", "weight.nested_absmax",
                                      "weight.nested_quant_map", "weight.quant_state.bitsandbytes__nf4"}));
  EXPECT_EQ(rows.names, (std::vector<std::string>{"weight", "SCB", "weight_format"}));
  EXPECT_EQ(twice.tensors[0].sizes(), (std::vector<int64_t>{128, 1}));
  EXPECT_EQ(twice.group, 64);
  EXPECT_EQ(rows.group, 0);
  EXPECT_LT(distance(rows.scales * 127, rows.tensors[1]), 1e-6);
}

TEST(QuantizedLinear, MultipliesOutliersAsTheyAre) {
  const Layer layer = layer_of(numbers_of({8, 64}, 3), "llm_int8");
  at::Tensor input = numbers_of({5, 64}, 7);
  input.select(1, 11).fill_(50);
  const at::Tensor exact = input.matmul((layer.tensors[0].to(at::kFloat) * layer.scales.view({-1, 1})).t());
  EXPECT_LT(distance(layer(input, {}, 6), exact), 0.01);
  EXPECT_GT(distance(layer(input, {}, 0), exact), 2 * distance(layer(input, {}, 6), exact));
}

TEST(QuantizedLinear, TakesWeightsWhoseRowsNoBlockDivides) {
  const at::Tensor weight = numbers_of({5, 7}, 3);
  const Layer layer = layer_of(weight, "nf4");
  EXPECT_EQ(layer.tensors[0].numel(), 18);
  EXPECT_LT(distance(layer(at::eye(7)).t(), weight), 0.2);
  EXPECT_EQ(layer(at::zeros({0, 7})).sizes(), (std::vector<int64_t>{0, 5}));
}

TEST(QuantizedLinear, RefusesWhatDoesNotFit) {
  const Layer layer = layer_of(numbers_of({8, 64}, 3), "nf4");
  const at::Tensor input = numbers_of({2, 64}, 7);
  at::Tensor broken = numbers_of({8, 64}, 3).clone();
  broken[6][1] = std::numeric_limits<double>::infinity();
  expect_error(Status::kInvalidArgument, "'layer.weight' has a NaN or an infinity in row 6",
               [&] { layer_of(broken, "nf4"); });
  expect_error(Status::kUnsupported, "expected one with the tensors of bitsandbytes", [&] {
    layer_of(numbers_of({8, 64}, 3), "int4");
  });
  expect_error(Status::kInvalidArgument, "the kind of quantization is 'nf5'", [&] {
    layer_of(numbers_of({8, 64}, 3), "nf5");
  });
  expect_error(Status::kInvalidArgument, "not those of a quantized weight",
               [&] { quantized_scales({layer.tensors[0]}, {"weight"}); });
  expect_error(Status::kInvalidArgument, "1 tensors have 2 names", [&] {
    quantized_scales({layer.tensors[0]}, {"weight", "SCB"});
  });
  expect_error(Status::kShapeMismatch, "the input is [2, 32]", [&] { layer(input.narrow(1, 0, 32)); });
  expect_error(Status::kShapeMismatch, "the bias is", [&] { layer(input, at::zeros({7})); });
  Layer other = layer;
  other.sizes = {9, 64};
  expect_error(Status::kShapeMismatch, "the codes are", [&] { other(input); });
  other = layer;
  other.scales = layer.scales.narrow(0, 0, 3);
  expect_error(Status::kShapeMismatch, "the scales are", [&] { other(input); });
  other = layer;
  other.sizes = {8};
  expect_error(Status::kInvalidArgument, "expected [rows, columns]", [&] { other(input); });
}

}  // namespace quantized_linear_test
}  // namespace accel::nn
