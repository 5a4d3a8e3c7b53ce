// SPDX-License-Identifier: Apache-2.0
// Compiled several times with different instruction sets (see meson.build and stored_number.hpp).
#include "kernels/quantized/code_kernels.hpp"

#include "kernels/format_dispatch.hpp"
#include "kernels/fp8/float8.hpp"
#include "kernels/quantized/code_books.hpp"

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {
namespace {

constexpr float kSmallestGroup = 0x1p-100f;  // groups of smaller magnitudes count as zeros
constexpr float kNearest = 0x1.8p23f;        // added to a number, it leaves the nearest integer in the last bits
constexpr int64_t kRunInCache = 1024;        // numbers that stay in the L1 cache

inline float smaller_of(float a, float b) { return b < a ? b : a; }
inline float larger_of(float a, float b) { return a < b ? b : a; }

// Minimum and maximum of a group, and whether all numbers are finite.
struct GroupRange {
  float low, high;
  bool is_finite;
};

constexpr int64_t kRangeLanes = 16;

inline GroupRange range_of(const float* values, int64_t count) {
  float low[kRangeLanes], high[kRangeLanes];
  uint32_t largest[kRangeLanes] = {};
  for (int64_t i = 0; i < kRangeLanes; i++) low[i] = high[i] = values[0];
  const auto see = [&](float value, int64_t lane) {
    const uint32_t bits = bits_as<uint32_t>(value) & 0x7fffffffu;
    largest[lane] = bits > largest[lane] ? bits : largest[lane];
    low[lane] = smaller_of(low[lane], value);
    high[lane] = larger_of(high[lane], value);
  };
  int64_t i = 0;
  for (; i + kRangeLanes <= count; i += kRangeLanes)
    for (int64_t lane = 0; lane < kRangeLanes; lane++) see(values[i + lane], lane);
  for (; i < count; i++) see(values[i], 0);
  for (int64_t lane = 1; lane < kRangeLanes; lane++) {
    low[0] = smaller_of(low[0], low[lane]);
    high[0] = larger_of(high[0], high[lane]);
    largest[0] = largest[lane] > largest[0] ? largest[lane] : largest[0];
  }
  return {low[0], high[0], largest[0] < 0x7f800000u};
}

struct GroupScale {
  float scale, inverse, offset;
};

inline float largest_value(WeightCode code) {
  switch (code) {
    case WeightCode::kInt8:
      return 127;
    case WeightCode::kFloat8E4M3:
      return bits_as<float>(Float8E4M3::kLargestNumber);
    case WeightCode::kFloat8E5M2:
      return bits_as<float>(Float8E5M2::kLargestNumber);
    default:
      return 1;
  }
}

inline GroupScale scale_of(const WeightFormat& format, const GroupRange& range) {
  if (format.has_offsets) {
    const bool is_byte = format.code == WeightCode::kInt8;
    const float steps = is_byte ? 255 : 15, width = range.high - range.low;
    if (width < kSmallestGroup) return {0, 0, range.low};
    const float scale = width / steps;
    return {scale, steps / width, is_byte ? range.low + 128 * scale : range.low};
  }
  const float magnitude = larger_of(-range.low, range.high);
  if (magnitude < kSmallestGroup) return {0, 0, 0};
  if (format.code == WeightCode::kInt4) {
    const float peak = -range.low >= range.high ? range.low : range.high;
    return {peak / -kInt4Zero, -kInt4Zero / peak, 0};
  }
  const float largest = largest_value(format.code);
  return {magnitude / largest, largest / magnitude, 0};
}

// The nearest integer from `low` to `high`, of `zero` more than the number.
inline void encode_integers(const float* values, int64_t count, const GroupScale& scale, float zero, float low,
                            float high, uint8_t* codes) {
  ACCEL_VECTORISE
  for (int64_t i = 0; i < count; i++) {
    const float number = (values[i] - scale.offset) * scale.inverse + zero;
    const float nearest = (number + kNearest) - kNearest;
    codes[i] = static_cast<uint8_t>(static_cast<int32_t>(smaller_of(larger_of(nearest, low), high)));
  }
}

inline void encode_by_book(const float* values, int64_t count, float inverse, const CodeBorders& book, uint8_t* codes) {
  ACCEL_VECTORISE
  for (int64_t i = 0; i < count; i++) {
    const float number = smaller_of(larger_of(values[i] * inverse, -1.0f), 1.0f);
    int32_t below = 0;
#pragma GCC unroll 15
    for (int border = 0; border < 15; border++) below += number > book.borders[border] ? 1 : 0;
    codes[i] = static_cast<uint8_t>(below);
  }
  for (int64_t i = 0; i < count; i++) codes[i] = book.codes[codes[i]];
}

template <typename Small>
inline void encode_floats(const float* values, int64_t count, float inverse, uint8_t* codes) {
  ACCEL_VECTORISE
  for (int64_t i = 0; i < count; i++) codes[i] = Small::store(values[i] * inverse);
}

// One code a byte.
void encode_run(const float* values, int64_t count, const WeightFormat& format, const GroupScale& scale,
                const CodeBorders& borders, uint8_t* codes) {
  switch (format.code) {
    case WeightCode::kInt8:
      return encode_integers(values, count, scale, 0, format.has_offsets ? -128 : -127, 127, codes);
    case WeightCode::kInt4:
      return encode_integers(values, count, scale, format.has_offsets ? 0 : kInt4Zero, 0, 15, codes);
    case WeightCode::kNf4:
    case WeightCode::kFp4:
      return encode_by_book(values, count, scale.inverse, borders, codes);
    case WeightCode::kFloat8E4M3:
      return encode_floats<Float8E4M3>(values, count, scale.inverse, codes);
    case WeightCode::kFloat8E5M2:
      return encode_floats<Float8E5M2>(values, count, scale.inverse, codes);
  }
}

// Puts codes of the columns from `first` of a row into the halves of bytes.
inline void pack_halves(const uint8_t* codes, int64_t first, int64_t count, uint8_t* row) {
  int64_t i = 0;
  if (first % 2 != 0 && count > 0) row[first / 2] = static_cast<uint8_t>((row[first / 2] & 0xf0) | codes[i++]);
  uint8_t* const to = row + (first + i) / 2;
  const int64_t pairs = (count - i) / 2;
  for (int64_t pair = 0; pair < pairs; pair++)
    to[pair] = static_cast<uint8_t>(codes[i + 2 * pair] << 4 | codes[i + 2 * pair + 1]);
  if (i + 2 * pairs < count) to[pairs] = static_cast<uint8_t>(codes[count - 1] << 4);
}

inline bool has_half_bytes(WeightCode code) {
  return code == WeightCode::kInt4 || code == WeightCode::kNf4 || code == WeightCode::kFp4;
}

int64_t quantize_row(const void* row, Format row_format, int64_t columns, const WeightFormat& format,
                     const CodeBorders& borders, float* exact, uint8_t* codes, float* scales, float* offsets) {
  with_number(row_format, [&](auto number) {
    using Number = decltype(number);
    const auto* const from = static_cast<const typename Number::Stored*>(row);
    ACCEL_VECTORISE
    for (int64_t i = 0; i < columns; i++) exact[i] = Number::load(from[i]);
  });
  const int64_t group = format.group == 0 ? columns : format.group;
  const bool is_half = has_half_bytes(format.code);
  for (int64_t first = 0, index = 0; first < columns; first += group, index++) {
    const int64_t end = first + group < columns ? first + group : columns;
    const GroupRange range = range_of(exact + first, end - first);
    if (!range.is_finite) return index;
    const GroupScale scale = scale_of(format, range);
    if ((bits_as<uint32_t>(scale.scale) & 0x7f800000u) == 0x7f800000u) return index;
    scales[index] = scale.scale;
    if (format.has_offsets) offsets[index] = scale.offset;
    for (int64_t begin = first; begin < end; begin += kRunInCache) {
      const int64_t count = end - begin < kRunInCache ? end - begin : kRunInCache;
      uint8_t halves[kRunInCache];
      encode_run(exact + begin, count, format, scale, borders, is_half ? halves : codes + begin);
      if (is_half) pack_halves(halves, begin, count, codes);
    }
  }
  return -1;
}

inline float book_value(const WeightFormat& format, int code) {
  if (format.code == WeightCode::kNf4) return kNf4Values[code];
  if (format.code == WeightCode::kFp4) return fp4_value(code);
  return static_cast<float>(code) - (format.has_offsets ? 0 : kInt4Zero);
}

// Columns [first, end) of a row of half bytes, by a table of the 256 pairs' values times the scale.
inline void decode_halves(const WeightFormat& format, const uint8_t* row, int64_t first, int64_t end, float scale,
                          float offset, float* exact) {
  float table[16];
  for (int code = 0; code < 16; code++)
    table[code] = format.has_offsets ? book_value(format, code) * scale + offset : book_value(format, code) * scale;
  int64_t column = first;
  if (column % 2 != 0 && column < end) {
    exact[column] = table[row[column / 2] & 15];
    column++;
  }
  for (; column + 1 < end; column += 2) {
    const uint8_t pair = row[column / 2];
    exact[column] = table[pair >> 4];
    exact[column + 1] = table[pair & 15];
  }
  if (column < end) exact[column] = table[row[column / 2] >> 4];
}

inline void decode_bytes(const uint8_t* codes, int64_t count, float scale, const float* offset, float* exact) {
  if (offset != nullptr) {
    const float added = *offset;
    ACCEL_VECTORISE
    for (int64_t i = 0; i < count; i++) exact[i] = static_cast<float>(static_cast<int8_t>(codes[i])) * scale + added;
    return;
  }
  ACCEL_VECTORISE
  for (int64_t i = 0; i < count; i++) exact[i] = static_cast<float>(static_cast<int8_t>(codes[i])) * scale;
}

template <typename Small>
inline void decode_floats(const uint8_t* codes, int64_t count, float scale, float* exact) {
  if (has_special_codes<Small>(codes, count)) {
    ACCEL_VECTORISE
    for (int64_t i = 0; i < count; i++) exact[i] = Small::load(codes[i]) * scale;
    return;
  }
  ACCEL_VECTORISE
  for (int64_t i = 0; i < count; i++) exact[i] = Small::load_finite(codes[i]) * scale;
}

void decode_row(const QuantizedWeight& weight, int64_t row, float* exact) {
  const WeightFormat& format = weight.format;
  const int64_t columns = weight.columns, group = format.group == 0 ? columns : format.group;
  const int64_t groups = columns == 0 ? 0 : (columns + group - 1) / group;
  const bool is_half = has_half_bytes(format.code);
  const uint8_t* const codes = weight.codes + row * (is_half ? (columns + 1) / 2 : columns);
  for (int64_t index = 0; index < groups; index++) {
    const int64_t first = index * group, end = first + group < columns ? first + group : columns;
    const float scale = weight.scales[row * groups + index];
    const float* const offset = format.has_offsets ? weight.offsets + row * groups + index : nullptr;
    if (is_half)
      decode_halves(format, codes, first, end, scale, offset == nullptr ? 0 : *offset, exact);
    else if (format.code == WeightCode::kInt8)
      decode_bytes(codes + first, end - first, scale, offset, exact + first);
    else if (format.code == WeightCode::kFloat8E4M3)
      decode_floats<Float8E4M3>(codes + first, end - first, scale, exact + first);
    else
      decode_floats<Float8E5M2>(codes + first, end - first, scale, exact + first);
  }
}

void dequantize_row(const QuantizedWeight& weight, int64_t row, float* exact, void* values, Format values_format) {
  if (values_format == Format::kFloat) return decode_row(weight, row, static_cast<float*>(values));
  decode_row(weight, row, exact);
  with_number(values_format, [&](auto number) {
    using Number = decltype(number);
    auto* const to = static_cast<typename Number::Stored*>(values);
    ACCEL_VECTORISE
    for (int64_t i = 0; i < weight.columns; i++) to[i] = Number::store(exact[i]);
  });
}

}  // namespace

CodeKernels code_kernels() { return {quantize_row, dequantize_row}; }

}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE
