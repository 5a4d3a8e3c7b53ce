// SPDX-License-Identifier: Apache-2.0
// Packing: blocks of matrices as a matmul microkernel reads them, row-major and in float32, and its results in the
// dtype of a tensor. The source is compiled once for each instruction set, see kernels.hpp.
#pragma once

#include <cstdint>

#include "kernels/update/element_span.hpp"

namespace accel::kernels {

// A block of a matrix in float32, bfloat16 or float16. Element (row, column) is at row * stride + column, or where it
// is transposed at column * stride + row.
struct PackSource {
  const void* data = nullptr;
  int64_t stride = 0;
  Format format = Format::kFloat;
  bool transposed = false;
};

struct PackingKernels {
  // `to` receives `rows` rows of `columns` elements at distances of `to_stride`.
  void (*pack)(const PackSource& source, int64_t rows, int64_t columns, float* to, int64_t to_stride);
  // The reverse of a source that is not transposed; rounds to nearest.
  void (*unpack)(const float* from, int64_t from_stride, int64_t rows, int64_t columns, void* to, Format format,
                 int64_t to_stride);
  // Adds a row, as of a bias, to each of `rows` rows.
  void (*add_row)(const float* row, int64_t rows, int64_t columns, float* to, int64_t to_stride);
};

namespace baseline {
PackingKernels packing_kernels();
}
namespace avx2 {
PackingKernels packing_kernels();
}
namespace avx512 {
PackingKernels packing_kernels();
}

}  // namespace accel::kernels
