// Compiled several times with different instruction sets (see meson.build and stored_number.hpp).
#include "kernels/fp8/fp8_kernels.hpp"

#include "kernels/format_dispatch.hpp"
#include "kernels/fp8/float8.hpp"
#include "kernels/matmul/transpose.hpp"

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {
namespace {

constexpr float kOne = 1;

typedef uint16_t HalfOfUnit __attribute__((may_alias));

// What a register of 32 bits holds of a line: two neighbours in bfloat16, of which the second one is the high half.
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

// Or one number.
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
inline void unit_of_lines(const Fp8PackSource& source, int64_t line, int64_t unit, int64_t count, uint32_t* to) {
  const int64_t k = Unit::kNumbers * unit;
  const uint8_t* const even = source.data + k * source.stride + line;
  const uint8_t* const odd = even + (Unit::kNumbers - 1) * source.stride;
  if (source.scales.data == nullptr) return scaled_unit_of_lines<Unit, 0>(even, odd, count, &kOne, to);
  scaled_unit_of_lines<Unit, 1>(even, odd, count, source.scales.from(line, k).data, to);
}

template <typename Unit>
inline void scaled_numbers(const uint8_t* from, int64_t count, float scale, typename Unit::Element* to) {
  ACCEL_VECTORISE
  for (int64_t i = 0; i < count; i++) to[i] = Unit::element(from[i], scale);
}

// `count` neighbours of a line of a source that is not transposed.
template <typename Unit>
inline void numbers_of_line(const Fp8PackSource& source, int64_t line, int64_t k, int64_t count,
                            typename Unit::Element* to) {
  const uint8_t* const from = source.data + line * source.stride + k;
  if (source.scales.data == nullptr) return scaled_numbers<Unit>(from, count, kOne, to);
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

// Packs by blocks of kLanes lines by kLanes units, which are transposed in registers.
template <typename Unit, typename Load>
void pack_blocks(const Fp8PackSource& source, int64_t lines, int64_t inner, uint32_t* to, int64_t line_step,
                 int64_t unit_step, const Load& load) {
  const bool by_units = line_step == 1;  // the rows of the result are units
  const int64_t whole_lines = lines / kLanes * kLanes, whole_units = inner / Unit::kNumbers / kLanes * kLanes;
  for (int64_t line = 0; line < whole_lines; line += kLanes) {
    for (int64_t unit = 0; unit < whole_units; unit += kLanes) {
      alignas(64) uint32_t values[kLanes][kLanes];
      FloatLanes block[kLanes];
      for (int64_t lane = 0; lane < kLanes; lane++) load(line, unit, lane, values[lane]);
#pragma GCC unroll 16
      for (int64_t lane = 0; lane < kLanes; lane++) __builtin_memcpy(&block[lane], values[lane], sizeof(block[lane]));
      transpose_lanes(block);
      uint32_t* const target = to + line * line_step + unit * unit_step;
#pragma GCC unroll 16
      for (int64_t lane = 0; lane < kLanes; lane++)
        __builtin_memcpy(target + lane * (by_units ? unit_step : line_step), &block[lane], sizeof(block[lane]));
    }
  }
  const int64_t units = (inner + Unit::kNumbers - 1) / Unit::kNumbers;
  for (int64_t line = 0; line < lines; line++)
    for (int64_t unit = line < whole_lines ? whole_units : 0; unit < units; unit++)
      to[line * line_step + unit * unit_step] = single_unit<Unit>(source, line, unit, inner);
}

template <typename Unit>
void pack_lines_as(const Fp8PackSource& source, int64_t lines, int64_t inner, uint32_t* to, int64_t to_stride) {
  if (source.transposed)
    return pack_blocks<Unit>(source, lines, inner, to, to_stride, 1,
                             [&](int64_t line, int64_t unit, int64_t lane, uint32_t* values) {
                               unit_of_lines<Unit>(source, line, unit + lane, kLanes, values);
                             });
  const int64_t whole = inner / Unit::kNumbers;
  for (int64_t line = 0; line < lines; line++) {
    uint32_t* const target = to + line * to_stride;
    numbers_of_line<Unit>(source, line, 0, whole * Unit::kNumbers, reinterpret_cast<typename Unit::Element*>(target));
    if (whole * Unit::kNumbers < inner) target[whole] = single_unit<Unit>(source, line, whole, inner);
  }
}

template <typename Unit>
void pack_columns_as(const Fp8PackSource& source, int64_t lines, int64_t inner, uint32_t* to, int64_t to_stride) {
  if (!source.transposed)
    return pack_blocks<Unit>(
        source, lines, inner, to, 1, to_stride, [&](int64_t line, int64_t unit, int64_t lane, uint32_t* values) {
          numbers_of_line<Unit>(source, line + lane, Unit::kNumbers * unit, Unit::kNumbers * kLanes,
                                reinterpret_cast<typename Unit::Element*>(values));
        });
  const int64_t whole = inner / Unit::kNumbers;
  for (int64_t unit = 0; unit < whole; unit++) unit_of_lines<Unit>(source, 0, unit, lines, to + unit * to_stride);
  if (whole * Unit::kNumbers < inner)
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
