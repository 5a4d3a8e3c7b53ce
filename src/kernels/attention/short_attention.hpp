// SPDX-License-Identifier: Apache-2.0
// Attention of short sequences in half precision by batched matmuls. It stores the scores of several heads; for long
// sequences LibTorch's flash attention, which stores none, is faster.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

namespace accel::kernels {

// Queries, keys and values are [batch, heads, positions, size] on the CPU, all bfloat16 or all float16. Scores and
// their sums are float32. Results are laid out as LibTorch's are.
struct ShortAttention {
  // Whether this is faster than LibTorch's kernel, which uses matrix tiles (AMX) from 192 positions on.
  static bool is_faster(at::ScalarType dtype, int64_t positions);

  at::Tensor query;
  at::Tensor key;
  at::Tensor value;
  bool is_causal;
  double scale;

  // The output, and the logsumexp of the scores [batch, heads, queries] in float32.
  std::tuple<at::Tensor, at::Tensor> forward() const;
  // The gradients of query, key and value.
  std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(const at::Tensor& out_gradient, const at::Tensor& out,
                                                          const at::Tensor& logsumexp) const;
};

}  // namespace accel::kernels
