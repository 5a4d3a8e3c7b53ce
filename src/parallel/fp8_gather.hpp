// SPDX-License-Identifier: Apache-2.0
// Fp8 gather: which weights a sharded model gathers in 8-bit floating point, and how they are cast.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/fp8/fp8_values.hpp"
#include "nn/low_precision/fp8_cast.hpp"

namespace accel::parallel {

struct Fp8Gather {
  // Whether a parameter, which is a matrix, is gathered so.
  std::function<bool(const at::Tensor& weight)> covers;
  at::ScalarType format = at::kFloat8_e4m3fn;
  kernels::Fp8Granularity granularity = kernels::Fp8Granularity::kTensor;
  int64_t margin = 0;          // scales are divided by 2^margin
  bool in_evaluation = false;  // false: a model in evaluation gathers these weights as it does others
  std::shared_ptr<nn::Fp8Overflows> overflows = std::make_shared<nn::Fp8Overflows>();  // of the casts of this rank
  // Null, or called when a weight is whole, with what was gathered: [rows, inner], and its scales. When the weight is
  // released it is called without values.
  std::function<void(const at::Tensor& weight, const kernels::Fp8Matrix& gathered)> given;
};

using Fp8GatherPtr = std::shared_ptr<const Fp8Gather>;

}  // namespace accel::parallel
