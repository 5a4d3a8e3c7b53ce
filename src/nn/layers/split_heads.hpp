// SPDX-License-Identifier: Apache-2.0
// Multi-head attention's heads: a projection split into them, and their outputs joined.
#pragma once

#include <ATen/core/Tensor.h>

namespace accel::nn {

// Query, key and value of all heads as views [batch, heads, length, size] of one projection [batch, length, 3 * heads *
// size].
struct Heads {
  at::Tensor query;
  at::Tensor key;
  at::Tensor value;
};
Heads split_heads(const at::Tensor& projected, int64_t head_size);

// The heads of one of these, a view [batch, heads, length, size] of [batch, length, heads * size].
at::Tensor view_heads(const at::Tensor& projected, int64_t head_size);

// Back to [batch, length, heads * size].
at::Tensor join_heads(const at::Tensor& mixed);

}  // namespace accel::nn
