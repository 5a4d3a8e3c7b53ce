// SPDX-License-Identifier: Apache-2.0
#include "kernels/quantized/reference_product.hpp"

#include <c10/util/BFloat16.h>
#include <c10/util/Float8_e4m3fn.h>
#include <c10/util/Float8_e5m2.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/quantized/code_books.hpp"

namespace accel::kernels::reference {
namespace {

constexpr float kLargestE4M3 = 448, kLargestE5M2 = 57344;
// Groups below it count as zeros: the reciprocal of their scale is no float32.
constexpr float kSmallestMagnitude = 0x1p-100f;

uint8_t nearest_of_book(const WeightFormat& format, float number) {
  uint8_t nearest = 0;
  for (uint8_t code = 1; code < 16; code++)
    if (std::abs(number - decode(format, code)) < std::abs(number - decode(format, nearest))) nearest = code;
  return nearest;
}

float clamped(float number, float low, float high) { return std::min(std::max(number, low), high); }

float largest_value(WeightCode code) {
  switch (code) {
    case WeightCode::kInt8:
      return 127;
    case WeightCode::kFloat8E4M3:
      return kLargestE4M3;
    case WeightCode::kFloat8E5M2:
      return kLargestE5M2;
    default:
      return 1;
  }
}

// Scale, its reciprocal, and offset of a group.
struct GroupScale {
  float scale = 0, inverse = 0, offset = 0;
};

GroupScale scale_of_group(const WeightFormat& format, const std::vector<float>& group) {
  const auto [low, high] = std::minmax_element(group.begin(), group.end());
  if (format.has_offsets) {
    const bool is_byte = format.code == WeightCode::kInt8;
    const float steps = is_byte ? 255 : 15, range = *high - *low;
    if (range < kSmallestMagnitude) return {0, 0, *low};
    const float scale = range / steps;
    return {scale, steps / range, is_byte ? *low + 128 * scale : *low};
  }
  const float magnitude = std::max(-*low, *high);
  if (magnitude < kSmallestMagnitude) return {};
  if (format.code == WeightCode::kInt4) {
    const float peak = -*low >= *high ? *low : *high;
    return {peak / -kInt4Zero, -kInt4Zero / peak, 0};
  }
  const float largest = largest_value(format.code);
  return {magnitude / largest, largest / magnitude, 0};
}

}  // namespace

float decode(const WeightFormat& format, uint8_t code) {
  switch (format.code) {
    case WeightCode::kInt8:
      return static_cast<int8_t>(code);
    case WeightCode::kInt4:
      return static_cast<float>(code) - (format.has_offsets ? 0 : kInt4Zero);
    case WeightCode::kNf4:
      return kNf4Values[code];
    case WeightCode::kFp4:
      return fp4_value(code);
    case WeightCode::kFloat8E4M3:
      return static_cast<float>(c10::Float8_e4m3fn(code, c10::Float8_e4m3fn::from_bits()));
    default:
      return static_cast<float>(c10::Float8_e5m2(code, c10::Float8_e5m2::from_bits()));
  }
}

uint8_t encode(const WeightFormat& format, float number) {
  switch (format.code) {
    case WeightCode::kInt8: {
      const float low = format.has_offsets ? -128 : -127;
      return static_cast<uint8_t>(static_cast<int8_t>(clamped(std::nearbyint(number), low, 127)));
    }
    case WeightCode::kInt4:
      return static_cast<uint8_t>(clamped(std::nearbyint(number + (format.has_offsets ? 0 : kInt4Zero)), 0, 15));
    case WeightCode::kNf4:
    case WeightCode::kFp4:
      return nearest_of_book(format, clamped(number, -1, 1));
    case WeightCode::kFloat8E4M3:
      return c10::Float8_e4m3fn(clamped(number, -kLargestE4M3, kLargestE4M3)).x;
    default:
      return c10::Float8_e5m2(clamped(number, -kLargestE5M2, kLargestE5M2)).x;
  }
}

uint8_t code_of(const QuantizedWeight& weight, int64_t row, int64_t column) {
  const uint8_t* const codes = weight.codes + row * row_bytes(weight.format, weight.columns);
  if (code_bits(weight.format.code) == 8) return codes[column];
  const uint8_t pair = codes[column / 2];
  return static_cast<uint8_t>(column % 2 == 0 ? pair >> 4 : pair & 15);
}

float value_of(const QuantizedWeight& weight, int64_t row, int64_t column) {
  const int64_t group =
      row * groups_of_row(weight.format, weight.columns) + column / group_columns(weight.format, weight.columns);
  const float value = decode(weight.format, code_of(weight, row, column)) * weight.scales[group];
  return weight.format.has_offsets ? value + weight.offsets[group] : value;
}

float load_number(const void* values, Format format, int64_t index) {
  switch (format) {
    case Format::kBFloat16:
      return static_cast<const c10::BFloat16*>(values)[index];
    case Format::kHalf:
      return static_cast<const c10::Half*>(values)[index];
    default:
      return static_cast<const float*>(values)[index];
  }
}

void store_number(float number, void* values, Format format, int64_t index) {
  switch (format) {
    case Format::kBFloat16:
      static_cast<c10::BFloat16*>(values)[index] = number;
      return;
    case Format::kHalf:
      static_cast<c10::Half*>(values)[index] = number;
      return;
    default:
      static_cast<float*>(values)[index] = number;
  }
}

std::optional<int64_t> quantize(const void* values, Format values_format, int64_t rows, int64_t columns,
                                const WeightFormat& format, uint8_t* codes, float* scales, float* offsets) {
  const int64_t groups = groups_of_row(format, columns), width = group_columns(format, columns);
  const bool is_byte = code_bits(format.code) == 8;
  std::fill(codes, codes + code_bytes(format, rows, columns), uint8_t{0});
  for (int64_t row = 0; row < rows; row++)
    for (int64_t group = 0; group < groups; group++) {
      const int64_t first = group * width, count = std::min(width, columns - first);
      std::vector<float> numbers(static_cast<size_t>(count));
      for (int64_t i = 0; i < count; i++) {
        numbers[static_cast<size_t>(i)] = load_number(values, values_format, row * columns + first + i);
        if (!std::isfinite(numbers[static_cast<size_t>(i)])) return row * groups + group;
      }
      const GroupScale of_group = scale_of_group(format, numbers);
      if (!std::isfinite(of_group.scale)) return row * groups + group;
      scales[row * groups + group] = of_group.scale;
      if (format.has_offsets) offsets[row * groups + group] = of_group.offset;
      for (int64_t i = 0; i < count; i++) {
        const float number = (numbers[static_cast<size_t>(i)] - of_group.offset) * of_group.inverse;
        const uint8_t code = encode(format, number);
        uint8_t* const row_codes = codes + row * row_bytes(format, columns);
        const int64_t column = first + i;
        if (is_byte)
          row_codes[column] = code;
        else
          row_codes[column / 2] |= static_cast<uint8_t>(column % 2 == 0 ? code << 4 : code);
      }
    }
  return std::nullopt;
}

void dequantize(const QuantizedWeight& weight, int64_t first_row, int64_t rows, void* values, Format values_format) {
  for (int64_t row = 0; row < rows; row++)
    for (int64_t column = 0; column < weight.columns; column++)
      store_number(value_of(weight, first_row + row, column), values, values_format, row * weight.columns + column);
}

void multiply(const QuantizedWeight& weight, const void* inputs, int64_t count, const void* bias, void* outputs,
              Format format) {
  for (int64_t row = 0; row < weight.rows; row++) {
    std::vector<float> values(static_cast<size_t>(weight.columns));
    dequantize(weight, row, 1, values.data(), Format::kFloat);
    for (int64_t input = 0; input < count; input++) {
      double sum = bias == nullptr ? 0 : load_number(bias, format, row);
      for (int64_t column = 0; column < weight.columns; column++)
        sum +=
            double{load_number(inputs, format, input * weight.columns + column)} * values[static_cast<size_t>(column)];
      store_number(static_cast<float>(sum), outputs, format, input * weight.rows + row);
    }
  }
}

void round_inputs(const WeightFormat& format, const float* inputs, int64_t count, int64_t columns, float* rounded) {
  const int64_t width = group_columns(format, columns);
  for (int64_t row = 0; row < count; row++)
    for (int64_t first = 0; first < columns; first += width) {
      const int64_t end = std::min(columns, first + width);
      const float* const from = inputs + row * columns;
      float magnitude = 0;
      for (int64_t column = first; column < end; column++) magnitude = std::max(magnitude, std::abs(from[column]));
      for (int64_t column = first; column < end; column++)
        rounded[row * columns + column] =
            magnitude < kSmallestMagnitude ? 0 : std::nearbyint(from[column] * (127 / magnitude)) * (magnitude / 127);
    }
}

}  // namespace accel::kernels::reference
