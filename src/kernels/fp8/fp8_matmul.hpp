// SPDX-License-Identifier: Apache-2.0
// Matmul of 8-bit floating-point matrices on the CPU: the numbers are multiplied exactly and added in float32, the sums
// are multiplied with the scales of their row and column, and rounded once to the dtype of the result. Scales of blocks
// are multiplied into the numbers, which powers of two leave exact.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "kernels/fp8/fp8_values.hpp"

namespace accel::kernels {

// The way to multiply: by the microkernel of bfloat16, by that of float32, or by LibTorch in float32.
enum class Fp8Arithmetic : uint8_t { kBfloat16, kFloat32, kLibTorch };

// The fastest one of this processor.
Fp8Arithmetic fastest_fp8_arithmetic();

// result = first * second, plus `bias`, [columns] of float32 or of the result's dtype, where it is defined. The values
// are [rows, inner] and [inner, columns], row-major or transposed. The scales of an operand are one number, one of each
// row of the first or column of the second one, or one of each 32 of the inner elements of these, [rows or columns,
// inner / 32]. The result is row-major, in float32, bfloat16 or float16.
void fp8_matmul(const Fp8Matrix& first, const Fp8Matrix& second, const at::Tensor& bias, const at::Tensor& result,
                Fp8Arithmetic arithmetic = fastest_fp8_arithmetic());

}  // namespace accel::kernels
