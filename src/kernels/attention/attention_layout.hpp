// SPDX-License-Identifier: Apache-2.0
// Memory layout of attention's results.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <utility>
#include <vector>

namespace accel::kernels {

// An empty [batch, heads, positions, ...] in memory as [batch, positions, heads, ...], the layout that models use.
inline at::Tensor with_heads_inside(const at::Tensor& like, at::IntArrayRef shape, at::ScalarType dtype) {
  std::vector<int64_t> inside = shape.vec();
  std::swap(inside[1], inside[2]);
  return at::empty(inside, like.options().dtype(dtype)).transpose(1, 2);
}

}  // namespace accel::kernels
