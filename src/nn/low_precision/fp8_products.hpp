// SPDX-License-Identifier: Apache-2.0
// The three products of a linear layer in 8 bits: its output, and the gradients of its input and weight.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "nn/low_precision/fp8_layer.hpp"

namespace accel::nn {

// Float32, bfloat16 or float16, which fp8_multiply() takes.
bool is_cast_to_fp8(at::ScalarType dtype);

// The product of the input [..., features] with the weight, whose dimension `output_dim` has the outputs, and the bias
// if it is defined; in the dtype of autocast, or else the input's. For the backward the operands are saved as they are
// multiplied, a byte an element. Shapes and devices fit together.
at::Tensor fp8_multiply(const std::shared_ptr<Fp8Layer>& layer, const at::Tensor& input, const at::Tensor& weight,
                        const at::Tensor& bias, int64_t output_dim);

}  // namespace accel::nn
