// SPDX-License-Identifier: Apache-2.0
// Attention to one block of keys and values, with the logsumexp of its scores, by which blocks are merged: by
// LibTorch's flash attention on the CPU, and by plain operators on other devices, with the scores of some queries at a
// time.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

namespace accel::parallel {

// Tensors are [batch, heads, positions, size], without autograd.
struct BlockAttention {
  bool is_causal = false;  // queries and keys have the same positions
  double scale = 1;

  // The output, and the logsumexp [batch, heads, positions].
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& query, const at::Tensor& key,
                                             const at::Tensor& value) const;
  // The gradients of queries, keys and values, where `out` and `logsumexp` are those of all blocks.
  std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(const at::Tensor& out_gradient, const at::Tensor& query,
                                                          const at::Tensor& key, const at::Tensor& value,
                                                          const at::Tensor& out, const at::Tensor& logsumexp) const;
};

// In which partial results are summed.
at::ScalarType exact_dtype(const at::Tensor& tensor);

}  // namespace accel::parallel
