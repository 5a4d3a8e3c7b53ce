// Matmul of 8-bit floating-point matrices on the CPU: the numbers are multiplied exactly and added in float32, the sums
// are multiplied with the scales of their row and column, and rounded once to the dtype of the result.
#pragma once

#include <ATen/core/Tensor.h>

namespace accel::kernels {

// An operand [rows, inner] or [inner, columns], row-major or transposed. `scales` are float32 on the CPU: one number,
// or one of each row of the first operand, of each column of the second one.
struct Fp8Matrix {
  at::Tensor values;
  at::Tensor scales;
};

// result = first * second, plus `bias`, [columns] of float32 or of the result's dtype, where it is defined. The result
// is row-major, in float32, bfloat16 or float16.
void fp8_matmul(const Fp8Matrix& first, const Fp8Matrix& second, const at::Tensor& bias, const at::Tensor& result);

}  // namespace accel::kernels
