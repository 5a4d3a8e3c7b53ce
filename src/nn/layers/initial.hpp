// SPDX-License-Identifier: Apache-2.0
// Parameter initialisation of torch.nn, drawn from the default generator in the same order, so that equal seeds give
// equal weights. A tensor on the device meta remembers the values that it would have: initial_values.hpp gives it them
// with memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace accel::nn {

// A weight [outputs, inputs, ...] with torch.nn.init.kaiming_uniform_(a = sqrt(5)), as in linear and convolution
// layers.
void fill_kaiming_uniform(const at::Tensor& weight);
void fill_xavier_uniform(const at::Tensor& weight);
// The bias for such a weight: uniform within 1 / sqrt(fan in).
void fill_bias_uniform(const at::Tensor& bias, const at::Tensor& weight);
void fill_normal(const at::Tensor& tensor, double mean, double deviation);
void fill_constant(const at::Tensor& tensor, double value);
// A tensor for a parameter, with this value everywhere; without a dtype that of new tensors.
at::Tensor constant_parameter(double value, at::IntArrayRef sizes, std::optional<at::ScalarType> dtype = std::nullopt);

// Throws an error that names the argument unless it is at least 1.
void check_size(int64_t size, const char* name);

}  // namespace accel::nn
