// SPDX-License-Identifier: Apache-2.0
// Attention of a few queries to keys and values in blocks of a paged cache. The source is compiled once for each
// instruction set, see kernels.hpp.
#pragma once

#include <cstdint>

#include "kernels/update/element_span.hpp"

namespace accel::kernels {

// The query heads of one sequence that share a key head. Strides count elements; all are of one format, float32 or
// bfloat16.
struct PagedHead {
  const void* queries = nullptr;  // of the first position and head
  void* out = nullptr;            // as the queries
  int64_t position_stride = 0, head_stride = 0, out_position_stride = 0, out_head_stride = 0;
  int64_t positions = 0;  // the last ones of the sequence
  int64_t heads = 0;
  int64_t size = 0;            // of a head
  const void* keys = nullptr;  // of the key head in block 0, [block_size, size]
  const void* values = nullptr;
  const int64_t* blocks = nullptr;  // the numbers of the sequence's blocks
  int64_t block_size = 0, block_stride = 0;
  int64_t length = 0;  // positions of the sequence
  int64_t window = 0;  // a query sees so many latest positions; 0: all
  float scale = 1;
  float cap = 0;  // scores are cap * tanh(score / cap), unless it is 0
  Format format = Format::kFloat;
  // positions * heads * (2 * size + length, rounded up to 16) elements.
  float* scratch = nullptr;
};

namespace baseline {
void attend_pages(const PagedHead& head);
}
namespace avx2 {
void attend_pages(const PagedHead& head);
}
namespace avx512 {
void attend_pages(const PagedHead& head);
}

}  // namespace accel::kernels
