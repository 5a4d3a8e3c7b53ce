// Quantization of CPU tensors to 8-bit floating point: of a tensor with one scale, or of the rows of a matrix with one
// each.
#pragma once

#include <ATen/core/Tensor.h>

namespace accel::kernels {

bool is_float8(at::ScalarType dtype);
// The largest finite number of an 8-bit dtype, 448 or 57344.
float largest_of(at::ScalarType dtype);

// The largest magnitude, NaN if an element is NaN, 0 of an empty tensor. Float32, bfloat16 or float16, dense.
float largest_magnitude(const at::Tensor& values);
// The largest magnitude of each row of a row-major matrix, [rows], float32.
at::Tensor largest_magnitudes_of_rows(const at::Tensor& matrix);

// values * scale in an 8-bit dtype, in the layout of `values`, which is dense. `scale` is a number, or [rows] of a
// row-major matrix, in float32.
at::Tensor quantized(const at::Tensor& values, float scale, at::ScalarType dtype);
at::Tensor quantized_rows(const at::Tensor& matrix, const at::Tensor& scales, at::ScalarType dtype);
// values * scale in float32, bfloat16 or float16.
at::Tensor dequantized(const at::Tensor& values, float scale, at::ScalarType dtype);
at::Tensor dequantized_rows(const at::Tensor& matrix, const at::Tensor& scales, at::ScalarType dtype);

}  // namespace accel::kernels
