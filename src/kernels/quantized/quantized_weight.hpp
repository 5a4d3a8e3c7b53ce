// SPDX-License-Identifier: Apache-2.0
// Quantized weights on the CPU: packing, unpacking and products with float inputs. Every function uses the threads of
// LibTorch. Numbers are in float32, bfloat16 or float16, as `Format` says.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/quantized/weight_format.hpp"
#include "kernels/update/element_span.hpp"

namespace accel::kernels {

// Quantizes a row-major matrix. The scale of a group is its largest magnitude divided by the largest code: 127, 448,
// 57344, or 1 of nf4 and fp4. Int4 maps the number of the largest magnitude to code 0, which stands for -8, so that all
// 16 codes are used (the scale may be negative). With offsets the codes are spread from the smallest to the largest
// number. Numbers become the nearest code. A group of zeros has scale 0. Returns the first group, row * groups_of_row()
// + group, that has a NaN or an infinity, or a range with offsets beyond float32; its codes and scales, and those after
// it, are then undefined.
std::optional<int64_t> quantize_weight(const void* values, Format values_format, int64_t rows, int64_t columns,
                                       const WeightFormat& format, uint8_t* codes, float* scales, float* offsets);

// Writes rows [first_row, first_row + rows), rounded once, into a row-major matrix [rows, columns].
void dequantize_weight(const QuantizedWeight& weight, int64_t first_row, int64_t rows, void* values,
                       Format values_format);

// outputs [count, rows] = inputs [count, columns] * weight^T, plus `bias` [rows] in each row unless that is null. All
// matrices are row-major and of one format; sums are of float32. Kernels of integers round the inputs to 16 bits in
// blocks of at most 256 columns, and the values of nf4 to 12 bits: the error is below 0.1 % of the exact product's
// norm. A row of inputs with a NaN or an infinity gives NaN there.
void multiply_quantized(const QuantizedWeight& weight, const void* inputs, int64_t count, const void* bias,
                        void* outputs, Format format);

// multiply_quantized() of inputs that are rounded to 8 bits: each group of columns of a row of inputs (the weight's
// groups) is the nearest multiple of its largest magnitude / 127. With int8 weights the sums of a group are exact
// integers.
void multiply_quantized_dynamic(const QuantizedWeight& weight, const void* inputs, int64_t count, const void* bias,
                                void* outputs, Format format);

}  // namespace accel::kernels
