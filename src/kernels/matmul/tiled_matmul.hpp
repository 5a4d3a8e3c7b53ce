// SPDX-License-Identifier: Apache-2.0
// Tiled matmul: products of CPU matrices of float32, bfloat16 and float16 in float32 arithmetic, by the microkernel
// over tiles that stay in the L2 cache. Where LibTorch's library copies both matrices into its own layout, this reads
// row-major ones in place, and converts or transposes others tile by tile.
#pragma once

#include <ATen/core/Tensor.h>

namespace accel::kernels {

// Packing a matrix pays where each element is used in that many multiply-adds.
inline constexpr int64_t kMinReuse = 256;

// Whether a matrix, or each of a batch, is row-major or transposed, with any distance of its rows.
bool is_tileable(const at::Tensor& matrix);

// Whether `added` is a row that tiled_matmul() takes as the bias of a result of so many columns.
bool is_bias(const at::Tensor& added, int64_t columns);

// result = first * second, plus `bias` in each row where that is defined, plus the former result where `accumulate` is
// set; not both. [rows, inner] and [inner, columns], or batches of them; all is_tileable(), the result with rows side
// by side and not an alias of the others; the bias is contiguous, [columns], in float32 or the result's dtype. Needs
// microkernel().
void tiled_matmul(const at::Tensor& first, const at::Tensor& second, const at::Tensor& result, const at::Tensor& bias,
                  bool accumulate);

}  // namespace accel::kernels
