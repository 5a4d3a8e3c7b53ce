// SPDX-License-Identifier: Apache-2.0
// Skinny matmul: products of a few rows with a transposed matrix on the CPU, as linear layers compute them for a few
// tokens. LibTorch's library copies the matrix into its own layout, which takes longer than the product, and its
// kernels of half precision add one number at a time where the processor has no instructions for it; this reads the
// matrix once, in place, and computes in float32.
#pragma once

#include <ATen/core/Tensor.h>

namespace accel::kernels {

// Whether there is a kernel for first * second that is faster than LibTorch's. Both are matrices of one dtype, float32,
// bfloat16 or float16, on the CPU.
bool is_skinny(const at::Tensor& first, const at::Tensor& second);

// result = first * second, plus `bias` in each row where that is defined: contiguous, [columns]. The result is
// contiguous and not an alias of the others, and all have one dtype.
void skinny_matmul(const at::Tensor& first, const at::Tensor& second, const at::Tensor& result, const at::Tensor& bias);

}  // namespace accel::kernels
