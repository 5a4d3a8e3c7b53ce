// SPDX-License-Identifier: Apache-2.0
// Quantization of CPU matrices to 8-bit floating point with scales: one of all numbers, of each row, or of each 32
// neighbours of a row.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/fp8/fp8_cast_kernels.hpp"

namespace accel::kernels {

// The numbers that share a scale. The scale of a block is a power of two.
enum class Fp8Granularity : uint8_t { kTensor, kRow, kBlock };

// A matrix [rows, inner] of values times scales, which are float32: one number, [rows], or [rows, inner / 32], rounded
// up. `values` are row-major or transposed.
struct Fp8Matrix {
  at::Tensor values;
  at::Tensor scales;
};

// An internal error where the scales do not fit the values.
Fp8Granularity granularity_of(const Fp8Matrix& matrix);

bool is_float8(at::ScalarType dtype);
// An internal error for any other dtype.
Float8Format float8_format(at::ScalarType dtype);
// The largest finite number of an 8-bit dtype, 448 or 57344.
float largest_of(at::ScalarType dtype);

// The largest magnitude, NaN if an element is NaN, 0 of an empty tensor. Float32, bfloat16 or float16, dense.
float largest_magnitude(const at::Tensor& values);

// The scale with which numbers up to a magnitude are cast: it maps the magnitude to the largest number of the format
// divided by 2^margin. 1 of zeros, infinities and NaN.
float scale_of(float magnitude, at::ScalarType format, int64_t margin = 0);

// Casts a row-major matrix in float32, bfloat16 or float16 to an 8-bit dtype, with scales from its own magnitudes, see
// scale_of(). Adds what it saw to `counts`, which may be null.
Fp8Matrix quantize(const at::Tensor& matrix, at::ScalarType format, Fp8Granularity granularity, int64_t margin = 0,
                   Fp8Counts* counts = nullptr);
// The transposed matrix [columns, rows], whose rows are the columns of the given one. The values are not moved: they
// are a transposed view.
Fp8Matrix quantize_columns(const at::Tensor& matrix, at::ScalarType format, Fp8Granularity granularity,
                           int64_t margin = 0, Fp8Counts* counts = nullptr);
// Casts a dense tensor of any shape times `scale`. One pass finds the largest magnitude too, for the scales of later
// steps.
Fp8Matrix quantize_with(const at::Tensor& values, at::ScalarType format, float scale, Fp8Counts* counts = nullptr);

// The numbers in float32, bfloat16 or float16, rounded once, in the layout of the values.
at::Tensor dequantize(const Fp8Matrix& matrix, at::ScalarType dtype);

}  // namespace accel::kernels
