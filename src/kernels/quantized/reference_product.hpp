// SPDX-License-Identifier: Apache-2.0
// The readable definition of quantized weights, one element at a time. Kernels are tested against it.
#pragma once

#include <optional>

#include "kernels/quantized/weight_format.hpp"
#include "kernels/update/element_span.hpp"

namespace accel::kernels::reference {

// The value of a code, before scale and offset.
float decode(const WeightFormat& format, uint8_t code);
// The code whose value is nearest to a number; of two the one with the lower index.
uint8_t encode(const WeightFormat& format, float number);

uint8_t code_of(const QuantizedWeight& weight, int64_t row, int64_t column);
float value_of(const QuantizedWeight& weight, int64_t row, int64_t column);

float load_number(const void* values, Format format, int64_t index);
void store_number(float number, void* values, Format format, int64_t index);

// The functions of quantized_weight.hpp, with exact inputs.
std::optional<int64_t> quantize(const void* values, Format values_format, int64_t rows, int64_t columns,
                                const WeightFormat& format, uint8_t* codes, float* scales, float* offsets);
void dequantize(const QuantizedWeight& weight, int64_t first_row, int64_t rows, void* values, Format values_format);
void multiply(const QuantizedWeight& weight, const void* inputs, int64_t count, const void* bias, void* outputs,
              Format format);

// Rounds the groups of inputs [count, columns] to 8 bits and back.
void round_inputs(const WeightFormat& format, const float* inputs, int64_t count, int64_t columns, float* rounded);

}  // namespace accel::kernels::reference
