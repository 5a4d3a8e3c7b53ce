// Attention of short sequences in half precision by batched products. All scores of some heads are held at once: for
// long sequences LibTorch's kernel, which holds none, is the faster one.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

namespace accel::kernels {

// Queries, keys and values are [batch, heads, positions, size] on the CPU, all bfloat16 or all float16. Scores and
// their sums are float32. Results are laid out as LibTorch's are.
struct ShortAttention {
  // Whether this is faster than LibTorch's kernel. From 192 positions on that one multiplies in tiles what has them.
  static bool is_faster(at::ScalarType dtype, int64_t positions);

  at::Tensor query;
  at::Tensor key;
  at::Tensor value;
  bool is_causal;
  double scale;

  // The output, and [batch, heads, queries] logarithms of the sums of exponentials, in float32.
  std::tuple<at::Tensor, at::Tensor> forward() const;
  // The gradients of query, key and value.
  std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(const at::Tensor& out_gradient, const at::Tensor& out,
                                                          const at::Tensor& logsumexp) const;
};

}  // namespace accel::kernels
