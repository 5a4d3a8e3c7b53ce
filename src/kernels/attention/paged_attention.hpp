// SPDX-License-Identifier: Apache-2.0
// Paged attention: a few new positions of several sequences on the CPU, whose keys and values are in the blocks of a
// paged cache (Kwon et al., 2023). Nothing is gathered: each block is read where it is.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace accel::kernels {

struct PagedSequence {
  int64_t first = 0;                // its first position in the queries
  int64_t positions = 0;            // in the queries: the last ones of the sequence
  int64_t length = 0;               // of the sequence
  const int64_t* blocks = nullptr;  // numbers
};

struct PagedAttention {
  at::Tensor query;   // [1, heads, positions of all sequences, size]
  at::Tensor keys;    // [blocks, key heads, block length, size]
  at::Tensor values;  // the same
  int64_t window;     // the latest positions that a query sees; 0: all
  double scale;
  double cap;  // scores are cap * tanh(score / cap), unless it is 0

  // Whether there is a kernel for these tensors.
  bool is_supported() const;
  // Writes the outputs of these sequences to their positions of `out`, which is like the query.
  void attend(const std::vector<PagedSequence>& sequences, const at::Tensor& out) const;
};

}  // namespace accel::kernels
