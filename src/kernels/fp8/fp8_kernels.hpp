// SPDX-License-Identifier: Apache-2.0
// Packing of 8-bit floating-point matrices for a matmul in bfloat16 or float32, and the end of its tiles. The source is
// compiled once for each instruction set, see update/kernels.hpp.
#pragma once

#include <cstdint>

#include "kernels/fp8/fp8_format.hpp"
#include "kernels/update/element_span.hpp"

namespace accel::kernels {

// Scales of blocks of inner elements of lines: element k of line i has data[i * line_step + k / 32 * block_step].
struct Fp8BlockScales {
  const float* data = nullptr;  // null: all are 1
  int64_t line_step = 0, block_step = 0;

  Fp8BlockScales from(int64_t line, int64_t k) const {
    return {data + line * line_step + k / kFp8Block * block_step, line_step, block_step};
  }
};

// A block of an operand of a matmul: lines, which are rows of the first matrix or columns of the second, of `inner`
// elements. Element k of a line is at line * stride + k, or where the source is transposed at k * stride + line; then
// the scales of lines are side by side.
struct Fp8PackSource {
  const uint8_t* data = nullptr;
  int64_t stride = 0;
  Float8Format format = Float8Format::kE4M3;
  bool transposed = false;
  Fp8BlockScales scales;

  // From an element whose k is a multiple of 32.
  Fp8PackSource from(int64_t line, int64_t k) const {
    return {data + (transposed ? k * stride + line : line * stride + k), stride, format, transposed,
            scales.data == nullptr ? scales : scales.from(line, k)};
  }
};

// Scales of the rows or columns of a result: one of each, or one of all where the step is 0.
struct Fp8Scales {
  const float* data = nullptr;
  int64_t step = 0;

  Fp8Scales from(int64_t index) const { return {data + index * step, step}; }
};

// The end of a tile of sums: each is multiplied with the scales of its row and column, and the bias of its
// column is added if there is one.
struct Fp8Epilogue {
  Fp8Scales rows, columns;
  const float* bias = nullptr;

  Fp8Epilogue from(int64_t row, int64_t column) const {
    return {rows.from(row), columns.from(column), bias == nullptr ? nullptr : bias + column};
  }
};

// Packs lines in units of 32 bits: a number in float32, or a pair of neighbouring inner elements in bfloat16, which has
// all 8-bit numbers times powers of two exactly. The last pair of an odd number has a 0.
struct Fp8Packing {
  // Unit u of a line goes to line * to_stride + u.
  void (*pack_lines)(const Fp8PackSource& source, int64_t lines, int64_t inner, uint32_t* to, int64_t to_stride);
  // And to u * to_stride + line.
  void (*pack_columns)(const Fp8PackSource& source, int64_t lines, int64_t inner, uint32_t* to, int64_t to_stride);
};

struct Fp8Kernels {
  Fp8Packing in_bfloat16, in_float32;
  // Stores a tile of sums in float32, bfloat16 or float16, rounded once.
  void (*finish)(const float* sums, int64_t stride, int64_t rows, int64_t columns, const Fp8Epilogue& epilogue,
                 void* to, Format format, int64_t to_stride);
};

namespace baseline {
Fp8Kernels fp8_kernels();
}
namespace avx2 {
Fp8Kernels fp8_kernels();
}
namespace avx512 {
Fp8Kernels fp8_kernels();
}

}  // namespace accel::kernels
