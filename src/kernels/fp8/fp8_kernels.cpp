// SPDX-License-Identifier: Apache-2.0
// Compiled several times with different instruction sets (see meson.build and stored_number.hpp).
#include "kernels/fp8/fp8_kernels.hpp"

#include "kernels/format_dispatch.hpp"
#include "kernels/fp8/float8.hpp"
#include "kernels/fp8/float8_table.hpp"
#include "kernels/matmul/transpose.hpp"

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {
namespace {

constexpr float kOne = 1;

typedef uint16_t HalfOfUnit __attribute__((may_alias));

// A unit holds two neighbours of a line in bfloat16, of which the second one is the high half.
template <typename SmallNumber>
struct Bfloat16Pairs {
  using Small = SmallNumber;
  using Element = HalfOfUnit;
  static constexpr int64_t kNumbers = 2;
  static uint16_t element(uint8_t stored, float scale) {
    return static_cast<uint16_t>(bits_as<uint32_t>(Small::load(stored) * scale) >> 16);
  }
  static uint32_t unit(uint8_t even, uint8_t odd, float scale) {
    return element(even, scale) | static_cast<uint32_t>(element(odd, scale)) << 16;
  }
};

// A unit holds one number.
template <typename SmallNumber>
struct Float32Numbers {
  using Small = SmallNumber;
  using Element = uint32_t;
  static constexpr int64_t kNumbers = 1;
  static uint32_t element(uint8_t stored, float scale) { return bits_as<uint32_t>(Small::load(stored) * scale); }
  static uint32_t unit(uint8_t number, uint8_t /*same*/, float scale) { return element(number, scale); }
};

// One unit of `count` lines of a transposed source, with a scale of each line (step 1) or of all (step 0).
template <typename Unit, int kStep>
inline void scaled_unit_of_lines(const uint8_t* even, const uint8_t* odd, int64_t count, const float* scales,
                                 uint32_t* to) {
  ACCEL_VECTORISE
  for (int64_t i = 0; i < count; i++) to[i] = Unit::unit(even[i], odd[i], scales[i * kStep]);
}

template <typename Unit>
inline void scaled_numbers(const uint8_t* from, int64_t count, float scale, typename Unit::Element* to) {
  ACCEL_VECTORISE
  for (int64_t i = 0; i < count; i++) to[i] = Unit::element(from[i], scale);
}

// Numbers without scales.
template <typename Unit>
struct PlainNumbers {
  void read(const uint8_t* from, int64_t count, typename Unit::Element* to) const {
    scaled_numbers<Unit>(from, count, kOne, to);
  }
  void read_units(const uint8_t* even, const uint8_t* odd, int64_t count, uint32_t* to) const {
    scaled_unit_of_lines<Unit, 0>(even, odd, count, &kOne, to);
  }
};

#ifdef ACCEL_TABLE_BYTES
template <typename Small>
struct PlainNumbers<Bfloat16Pairs<Small>> {
  void read(const uint8_t* from, int64_t count, HalfOfUnit* to) const {
    const int64_t whole = has_special_codes<Small>(from, count) ? 0 : count / kTableBytes * kTableBytes;
    for (int64_t i = 0; i < whole; i += kTableBytes) table.cast(from + i, to + i);
    scaled_numbers<Bfloat16Pairs<Small>>(from + whole, count - whole, kOne, to + whole);
  }
  void read_units(const uint8_t* even, const uint8_t* odd, int64_t count, uint32_t* to) const {
    HalfOfUnit low[kTableBytes], high[kTableBytes];
    for (int64_t begin = 0; begin < count; begin += kTableBytes) {
      const int64_t length = count - begin < kTableBytes ? count - begin : kTableBytes;
      read(even + begin, length, low);
      read(odd + begin, length, high);
      ACCEL_VECTORISE
      for (int64_t i = 0; i < length; i++) to[begin + i] = low[i] | static_cast<uint32_t>(high[i]) << 16;
    }
  }

  Float8Table<BFloat16, Small, 7> table{kOne};
};
#endif

template <typename Unit>
inline void unit_of_lines(const Fp8PackSource& source, const PlainNumbers<Unit>& plain, int64_t line, int64_t unit,
                          int64_t count, uint32_t* to) {
  const int64_t k = Unit::kNumbers * unit;
  const uint8_t* const even = source.data + k * source.stride + line;
  const uint8_t* const odd = even + (Unit::kNumbers - 1) * source.stride;
  if (source.scales.data == nullptr) return plain.read_units(even, odd, count, to);
  scaled_unit_of_lines<Unit, 1>(even, odd, count, source.scales.from(line, k).data, to);
}

// `count` neighbours of a line of a source that is not transposed.
template <typename Unit>
inline void numbers_of_line(const Fp8PackSource& source, const PlainNumbers<Unit>& plain, int64_t line, int64_t k,
                            int64_t count, typename Unit::Element* to) {
  const uint8_t* const from = source.data + line * source.stride + k;
  if (source.scales.data == nullptr) return plain.read(from, count, to);
  for (int64_t i = 0, length = 0; i < count; i += length) {
    const int64_t left = kFp8Block - (k + i) % kFp8Block;  // of the block
    length = count - i < left ? count - i : left;
    scaled_numbers<Unit>(from + i, length, *source.scales.from(line, k + i).data, to + i);
  }
}

// A single unit, whose second element may be missing.
template <typename Unit>
inline uint32_t single_unit(const Fp8PackSource& source, int64_t line, int64_t unit, int64_t inner) {
  const int64_t k = Unit::kNumbers * unit, last = k + Unit::kNumbers - 1;
  const float scale = source.scales.data == nullptr ? kOne : *source.scales.from(line, k).data;
  const auto stored = [&](int64_t index) {
    return source.data[source.transposed ? index * source.stride + line : line * source.stride + index];
  };
  return Unit::unit(stored(k), last < inner ? stored(last) : uint8_t{0}, scale);
}

// Transposes as it packs: element (row, column) goes to to[column * to_stride + row]. load(row, column, count, values)
// reads `count` neighbours of a row, and single(row, column) an element.
template <typename Load, typename Single>
void pack_transposed(int64_t rows, int64_t whole_rows, int64_t columns, int64_t whole_columns, uint32_t* to,
                     int64_t to_stride, const Load& load, const Single& single) {
  constexpr int64_t kWidth = 4 * kLanes;  // neighbours that are read together
  whole_rows = whole_rows / kLanes * kLanes;
  whole_columns = whole_columns / kLanes * kLanes;
  alignas(64) uint32_t values[kLanes][kWidth];
  for (int64_t column = 0; column < whole_columns; column += kWidth) {
    const int64_t width = whole_columns - column < kWidth ? whole_columns - column : kWidth;
    for (int64_t row = 0; row < whole_rows; row += kLanes) {
      for (int64_t lane = 0; lane < kLanes; lane++) load(row + lane, column, width, values[lane]);
      for (int64_t start = 0; start < width; start += kLanes) {
        FloatLanes block[kLanes];
#pragma GCC unroll 16
        for (int64_t lane = 0; lane < kLanes; lane++)
          __builtin_memcpy(&block[lane], values[lane] + start, sizeof(block[lane]));
        transpose_lanes(block);
        uint32_t* const target = to + (column + start) * to_stride + row;
#pragma GCC unroll 16
        for (int64_t lane = 0; lane < kLanes; lane++)
          __builtin_memcpy(target + lane * to_stride, &block[lane], sizeof(block[lane]));
      }
    }
  }
  for (int64_t row = 0; row < rows; row++)
    for (int64_t column = row < whole_rows ? whole_columns : 0; column < columns; column++)
      to[column * to_stride + row] = single(row, column);
}

template <typename Unit>
void pack_lines_as(const Fp8PackSource& source, int64_t lines, int64_t inner, uint32_t* to, int64_t to_stride) {
  const int64_t whole = inner / Unit::kNumbers, units = (inner + Unit::kNumbers - 1) / Unit::kNumbers;
  const PlainNumbers<Unit> plain;
  if (source.transposed)
    return pack_transposed(
        units, whole, lines, lines, to, to_stride,
        [&](int64_t unit, int64_t line, int64_t count, uint32_t* values) {
          unit_of_lines<Unit>(source, plain, line, unit, count, values);
        },
        [&](int64_t unit, int64_t line) { return single_unit<Unit>(source, line, unit, inner); });
  for (int64_t line = 0; line < lines; line++) {
    uint32_t* const target = to + line * to_stride;
    numbers_of_line<Unit>(source, plain, line, 0, whole * Unit::kNumbers,
                          reinterpret_cast<typename Unit::Element*>(target));
    if (whole < units) target[whole] = single_unit<Unit>(source, line, whole, inner);
  }
}

template <typename Unit>
void pack_columns_as(const Fp8PackSource& source, int64_t lines, int64_t inner, uint32_t* to, int64_t to_stride) {
  const int64_t whole = inner / Unit::kNumbers, units = (inner + Unit::kNumbers - 1) / Unit::kNumbers;
  const PlainNumbers<Unit> plain;
  if (!source.transposed)
    return pack_transposed(
        lines, lines, units, whole, to, to_stride,
        [&](int64_t line, int64_t unit, int64_t count, uint32_t* values) {
          numbers_of_line<Unit>(source, plain, line, Unit::kNumbers * unit, Unit::kNumbers * count,
                                reinterpret_cast<typename Unit::Element*>(values));
        },
        [&](int64_t line, int64_t unit) { return single_unit<Unit>(source, line, unit, inner); });
  for (int64_t unit = 0; unit < whole; unit++)
    unit_of_lines<Unit>(source, plain, 0, unit, lines, to + unit * to_stride);
  if (whole < units)
    for (int64_t line = 0; line < lines; line++)
      to[whole * to_stride + line] = single_unit<Unit>(source, line, whole, inner);
}

template <template <typename> class Unit>
void pack_lines(const Fp8PackSource& source, int64_t lines, int64_t inner, uint32_t* to, int64_t to_stride) {
  with_float8(source.format,
              [&](auto small) { pack_lines_as<Unit<decltype(small)>>(source, lines, inner, to, to_stride); });
}

template <template <typename> class Unit>
void pack_columns(const Fp8PackSource& source, int64_t lines, int64_t inner, uint32_t* to, int64_t to_stride) {
  with_float8(source.format,
              [&](auto small) { pack_columns_as<Unit<decltype(small)>>(source, lines, inner, to, to_stride); });
}

// One step of the columns' scales is known to the compiler.
template <typename Number, int kStep>
void finish_as(const float* sums, int64_t stride, int64_t rows, int64_t columns, const Fp8Epilogue& epilogue,
               typename Number::Stored* to, int64_t to_stride) {
  const float* const of_columns = epilogue.columns.data;
  const float* const bias = epilogue.bias;
  for (int64_t row = 0; row < rows; row++, sums += stride, to += to_stride) {
    const float of_row = epilogue.rows.data[row * epilogue.rows.step];
    if (bias == nullptr) {
      ACCEL_VECTORISE
      for (int64_t i = 0; i < columns; i++) to[i] = Number::store(sums[i] * (of_row * of_columns[i * kStep]));
    } else {
      ACCEL_VECTORISE
      for (int64_t i = 0; i < columns; i++) to[i] = Number::store(sums[i] * (of_row * of_columns[i * kStep]) + bias[i]);
    }
  }
}

void finish(const float* sums, int64_t stride, int64_t rows, int64_t columns, const Fp8Epilogue& epilogue, void* to,
            Format format, int64_t to_stride) {
  with_number(format, [&](auto number) {
    using Number = decltype(number);
    auto* const stored = static_cast<typename Number::Stored*>(to);
    if (epilogue.columns.step == 0)
      return finish_as<Number, 0>(sums, stride, rows, columns, epilogue, stored, to_stride);
    finish_as<Number, 1>(sums, stride, rows, columns, epilogue, stored, to_stride);
  });
}

}  // namespace

Fp8Kernels fp8_kernels() {
  return {{pack_lines<Bfloat16Pairs>, pack_columns<Bfloat16Pairs>},
          {pack_lines<Float32Numbers>, pack_columns<Float32Numbers>},
          finish};
}

}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE
