// Products of a few rows with all rows of a matrix, as a linear layer multiplies a few tokens with its weight. The
// source is compiled once for each instruction set, see kernels.hpp.
#pragma once

#include <cstdint>

namespace accel::kernels {

// result [rows, columns] = first [rows, inner] * second [columns, inner]^T + bias; strides are distances of rows.
struct SkinnyProduct {
  int64_t rows, inner;
  const float* first;
  int64_t first_stride;
  const float* second;
  int64_t second_stride;
  const float* bias;  // [columns], or null
  float* result;
  int64_t result_stride;
};

// Columns [begin, end) of the result.
namespace baseline {
void multiply_skinny(const SkinnyProduct& product, int64_t begin, int64_t end);
}
namespace avx2 {
void multiply_skinny(const SkinnyProduct& product, int64_t begin, int64_t end);
}
namespace avx512 {
void multiply_skinny(const SkinnyProduct& product, int64_t begin, int64_t end);
}

}  // namespace accel::kernels
