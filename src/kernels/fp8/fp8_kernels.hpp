// Casts between 8-bit floating point and float32, bfloat16 or float16, with a scale. The source is compiled once for
// each instruction set, see update/kernels.hpp.
#pragma once

#include <cstdint>

#include "kernels/update/element_span.hpp"

namespace accel::kernels {

enum class Float8Format : uint8_t { kE4M3, kE5M2 };

// A block of an operand of a matmul: lines, which are rows of the first matrix or columns of the second, of `inner`
// elements. Element k of a line is at line * stride + k, or where the source is transposed at k * stride + line.
struct Fp8PackSource {
  const uint8_t* data = nullptr;
  int64_t stride = 0;
  Float8Format format = Float8Format::kE4M3;
  bool transposed = false;
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

struct Fp8Kernels {
  // The largest magnitude of elements [first, last); NaN if one of them is NaN.
  float (*largest_magnitude)(const ElementSpan& from, int64_t first, int64_t last);
  // Elements [first, last): to = from * scale, rounded once to nearest; what is too large becomes the largest number.
  void (*quantize)(const ElementSpan& from, float scale, Float8Format format, uint8_t* to, int64_t first, int64_t last);
  // Elements [first, last): to = from * scale in float32, rounded once.
  void (*dequantize)(const uint8_t* from, Float8Format format, float scale, const ElementSpan& to, int64_t first,
                     int64_t last);
  // Packs as bfloat16, which has all 8-bit numbers exactly, in pairs of neighbouring inner elements; the last pair of
  // an odd number has a 0. Pair p of a line goes to line * to_stride + p, or to p * to_stride + line.
  void (*pack_lines)(const Fp8PackSource& source, int64_t lines, int64_t inner, uint32_t* to, int64_t to_stride);
  void (*pack_pairs)(const Fp8PackSource& source, int64_t lines, int64_t inner, uint32_t* to, int64_t to_stride);
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
