// SPDX-License-Identifier: Apache-2.0
#include "nn/layers/initial.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cmath>

#include "base/error.hpp"
#include "nn/creation_device.hpp"
#include "nn/initial_values.hpp"

namespace accel::nn {
namespace {

struct Fans {
  int64_t in;
  int64_t out;
};

Fans fans(const at::Tensor& weight) {
  const int64_t receptive_field = weight.dim() > 2 ? weight[0][0].numel() : 1;
  return {weight.size(1) * receptive_field, weight.size(0) * receptive_field};
}

void fill_uniform(const at::Tensor& tensor, double bound) {
  set_initial_values(tensor, {Filling::Kind::kUniform, -bound, bound});
}

}  // namespace

void fill_kaiming_uniform(const at::Tensor& weight) {
  // torch's order of operations, so that the last bit is the same.
  const double gain = std::sqrt(2.0 / (1.0 + std::sqrt(5.0) * std::sqrt(5.0)));
  const double deviation = gain / std::sqrt(static_cast<double>(fans(weight).in));
  fill_uniform(weight, std::sqrt(3.0) * deviation);
}

void fill_xavier_uniform(const at::Tensor& weight) {
  const Fans count = fans(weight);
  const double deviation = std::sqrt(2.0 / static_cast<double>(count.in + count.out));
  fill_uniform(weight, std::sqrt(3.0) * deviation);
}

void fill_bias_uniform(const at::Tensor& bias, const at::Tensor& weight) {
  fill_uniform(bias, 1.0 / std::sqrt(static_cast<double>(fans(weight).in)));
}

void fill_normal(const at::Tensor& tensor, double mean, double deviation) {
  set_initial_values(tensor, {Filling::Kind::kNormal, mean, deviation});
}

void fill_constant(const at::Tensor& tensor, double value) {
  set_initial_values(tensor, {Filling::Kind::kConstant, value});
}

at::Tensor constant_parameter(double value, at::IntArrayRef sizes, std::optional<at::ScalarType> dtype) {
  at::Tensor tensor = at::empty(sizes, new_parameter_options().dtype(dtype));
  fill_constant(tensor, value);
  return tensor;
}

void check_size(int64_t size, const char* name) {
  require(size >= 1, Status::kInvalidArgument, name, " is ", size, "; expected at least 1");
}

}  // namespace accel::nn
