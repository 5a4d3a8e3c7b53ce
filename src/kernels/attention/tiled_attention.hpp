// SPDX-License-Identifier: Apache-2.0
// Tiled attention: scaled dot-product attention of float32, bfloat16 and float16 on the CPU in float32 arithmetic, by
// the microkernel over strips of the scores that stay in the L2 cache. Above the diagonal of causal attention little is
// computed, where LibTorch's kernel computes most and masks it.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

namespace accel::kernels {

// [batch, heads, positions, size] on the CPU, of one dtype. Results are laid out as LibTorch's are.
struct TiledAttention {
  at::Tensor query;
  at::Tensor key;
  at::Tensor value;
  bool is_causal;
  double scale;

  // Whether there is a kernel for these tensors that is faster than LibTorch's.
  bool is_supported() const;
  // The output, and the logsumexp of the scores [batch, heads, queries] in float32.
  std::tuple<at::Tensor, at::Tensor> forward() const;
  // The gradients of query, key and value. Where these three are slices of one projection, as split_heads() makes them,
  // so are the gradients, and the projection's gradient needs no copy.
  std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(const at::Tensor& out_gradient, const at::Tensor& out,
                                                          const at::Tensor& logsumexp) const;
};

}  // namespace accel::kernels
