// SPDX-License-Identifier: Apache-2.0
// Products of a few rows with all rows of a matrix, as a linear layer multiplies a few tokens with its weight. The
// source is compiled once for each instruction set, see kernels.hpp.
#pragma once

#include <cstdint>

#include "kernels/update/element_span.hpp"

namespace accel::kernels {

// result [rows, columns] = first [rows, inner] * second [columns, inner]^T + bias; strides are distances of rows. Sums
// are of float32 and rounded once.
struct SkinnyProduct {
  int64_t rows, inner;
  const float* first;  // of half precision by arrange_skinny()
  int64_t first_stride;
  Format format;  // of the other matrices and the bias: kFloat, kBFloat16 or kHalf
  const void* second;
  int64_t second_stride;
  const void* bias;  // [columns], or null
  void* result;
  int64_t result_stride;
};

// arrange_skinny(): a row of `first` in float32, in the order in which its instruction set reads numbers of the format.
// multiply_skinny(): columns [begin, end) of the result.
namespace baseline {
void arrange_skinny(const void* row, int64_t inner, Format format, float* to);
void multiply_skinny(const SkinnyProduct& product, int64_t begin, int64_t end);
}  // namespace baseline
namespace avx2 {
void arrange_skinny(const void* row, int64_t inner, Format format, float* to);
void multiply_skinny(const SkinnyProduct& product, int64_t begin, int64_t end);
}  // namespace avx2
namespace avx512 {
void arrange_skinny(const void* row, int64_t inner, Format format, float* to);
void multiply_skinny(const SkinnyProduct& product, int64_t begin, int64_t end);
}  // namespace avx512

}  // namespace accel::kernels
