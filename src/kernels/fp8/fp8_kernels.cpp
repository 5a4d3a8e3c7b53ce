// Compiled several times with different instruction sets (see meson.build and stored_number.hpp).
#include "kernels/fp8/fp8_kernels.hpp"

#include "kernels/format_dispatch.hpp"
#include "kernels/fp8/float8.hpp"
#include "kernels/matmul/transpose.hpp"

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {
namespace {

template <typename Work>
inline void with_float8(Float8Format format, const Work& work) {
  if (format == Float8Format::kE4M3) return work(Float8E4M3());
  work(Float8E5M2());
}

template <typename Number>
float largest_magnitude_as(const typename Number::Stored* from, int64_t first, int64_t last) {
  uint32_t largest = 0;  // bits without the sign: they are ordered as the numbers are, and NaN comes last
  for (int64_t i = first; i < last; i++) {
    const uint32_t magnitude = bits_as<uint32_t>(Number::load(from[i])) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  return bits_as<float>(largest);
}

float largest_magnitude(const ElementSpan& from, int64_t first, int64_t last) {
  float largest = 0;
  with_number(from.format, [&](auto number) {
    using Number = decltype(number);
    largest = largest_magnitude_as<Number>(static_cast<const typename Number::Stored*>(from.data), first, last);
  });
  return largest;
}

template <typename Number, typename Small>
void quantize_as(const typename Number::Stored* from, float scale, uint8_t* to, int64_t first, int64_t last) {
  ACCEL_VECTORISE
  for (int64_t i = first; i < last; i++) to[i] = Small::store(Number::load(from[i]) * scale);
}

void quantize(const ElementSpan& from, float scale, Float8Format format, uint8_t* to, int64_t first, int64_t last) {
  with_number(from.format, [&](auto number) {
    using Number = decltype(number);
    with_float8(format, [&](auto small) {
      quantize_as<Number, decltype(small)>(static_cast<const typename Number::Stored*>(from.data), scale, to, first,
                                           last);
    });
  });
}

template <typename Number, typename Small>
void dequantize_as(const uint8_t* from, float scale, typename Number::Stored* to, int64_t first, int64_t last) {
  ACCEL_VECTORISE
  for (int64_t i = first; i < last; i++) to[i] = Number::store(Small::load(from[i]) * scale);
}

void dequantize(const uint8_t* from, Float8Format format, float scale, const ElementSpan& to, int64_t first,
                int64_t last) {
  with_number(to.format, [&](auto number) {
    using Number = decltype(number);
    with_float8(format, [&](auto small) {
      dequantize_as<Number, decltype(small)>(from, scale, static_cast<typename Number::Stored*>(to.data), first, last);
    });
  });
}

template <typename Small>
inline uint32_t bfloat16_of(uint8_t stored) {
  return bits_as<uint32_t>(Small::load(stored)) >> 16;
}

template <typename Small>
inline uint32_t pair_of(uint8_t even, uint8_t odd) {
  return bfloat16_of<Small>(even) | bfloat16_of<Small>(odd) << 16;
}

// Pair `pair` of `count` lines of a transposed source.
template <typename Small>
inline void pair_of_lines(const Fp8PackSource& source, int64_t line, int64_t pair, int64_t count, uint32_t* to) {
  const uint8_t* const even = source.data + 2 * pair * source.stride + line;
  const uint8_t* const odd = even + source.stride;
  ACCEL_VECTORISE
  for (int64_t i = 0; i < count; i++) to[i] = pair_of<Small>(even[i], odd[i]);
}

// `count` pairs of a line of a source that is not transposed, which are its numbers side by side.
template <typename Small>
inline void pairs_of_line(const Fp8PackSource& source, int64_t line, int64_t pair, int64_t count, uint16_t* to) {
  const uint8_t* const from = source.data + line * source.stride + 2 * pair;
  ACCEL_VECTORISE
  for (int64_t i = 0; i < 2 * count; i++) to[i] = static_cast<uint16_t>(bfloat16_of<Small>(from[i]));
}

// A single pair, whose second element may be missing.
template <typename Small>
inline uint32_t single_pair(const Fp8PackSource& source, int64_t line, int64_t pair, int64_t inner) {
  const auto element = [&](int64_t k) {
    return source.data[source.transposed ? k * source.stride + line : line * source.stride + k];
  };
  return pair_of<Small>(element(2 * pair), 2 * pair + 1 < inner ? element(2 * pair + 1) : uint8_t{0});
}

// Packs by blocks of kLanes lines by kLanes pairs, which are transposed in registers.
template <typename Small, typename Load>
void pack_blocks(const Fp8PackSource& source, int64_t lines, int64_t inner, uint32_t* to, int64_t line_step,
                 int64_t pair_step, const Load& load) {
  const bool by_pairs = line_step == 1;  // the rows of the result are pairs
  const int64_t whole_lines = lines / kLanes * kLanes, whole_pairs = inner / 2 / kLanes * kLanes;
  for (int64_t line = 0; line < whole_lines; line += kLanes) {
    for (int64_t pair = 0; pair < whole_pairs; pair += kLanes) {
      FloatLanes block[kLanes];
#pragma GCC unroll 16
      for (int64_t lane = 0; lane < kLanes; lane++) {
        load(line, pair, lane, &block[lane]);
      }
      transpose_lanes(block);
      uint32_t* const target = to + line * line_step + pair * pair_step;
#pragma GCC unroll 16
      for (int64_t lane = 0; lane < kLanes; lane++)
        __builtin_memcpy(target + lane * (by_pairs ? pair_step : line_step), &block[lane], sizeof(block[lane]));
    }
  }
  const int64_t pairs = (inner + 1) / 2;
  for (int64_t line = 0; line < lines; line++)
    for (int64_t pair = line < whole_lines ? whole_pairs : 0; pair < pairs; pair++)
      to[line * line_step + pair * pair_step] = single_pair<Small>(source, line, pair, inner);
}

template <typename Small>
void pack_lines_as(const Fp8PackSource& source, int64_t lines, int64_t inner, uint32_t* to, int64_t to_stride) {
  if (source.transposed)
    return pack_blocks<Small>(source, lines, inner, to, to_stride, 1,
                              [&](int64_t line, int64_t pair, int64_t lane, FloatLanes* to_lanes) {
                                alignas(64) uint32_t values[kLanes];
                                pair_of_lines<Small>(source, line, pair + lane, kLanes, values);
                                __builtin_memcpy(to_lanes, values, sizeof(*to_lanes));
                              });
  for (int64_t line = 0; line < lines; line++) {
    pairs_of_line<Small>(source, line, 0, inner / 2, reinterpret_cast<uint16_t*>(to + line * to_stride));
    if (inner % 2 != 0) to[line * to_stride + inner / 2] = single_pair<Small>(source, line, inner / 2, inner);
  }
}

template <typename Small>
void pack_pairs_as(const Fp8PackSource& source, int64_t lines, int64_t inner, uint32_t* to, int64_t to_stride) {
  if (!source.transposed)
    return pack_blocks<Small>(source, lines, inner, to, 1, to_stride,
                              [&](int64_t line, int64_t pair, int64_t lane, FloatLanes* to_lanes) {
                                alignas(64) uint16_t values[2 * kLanes];
                                pairs_of_line<Small>(source, line + lane, pair, kLanes, values);
                                __builtin_memcpy(to_lanes, values, sizeof(*to_lanes));
                              });
  for (int64_t pair = 0; pair < inner / 2; pair++) pair_of_lines<Small>(source, 0, pair, lines, to + pair * to_stride);
  if (inner % 2 != 0)
    for (int64_t line = 0; line < lines; line++)
      to[inner / 2 * to_stride + line] = single_pair<Small>(source, line, inner / 2, inner);
}

void pack_lines(const Fp8PackSource& source, int64_t lines, int64_t inner, uint32_t* to, int64_t to_stride) {
  with_float8(source.format, [&](auto small) { pack_lines_as<decltype(small)>(source, lines, inner, to, to_stride); });
}

void pack_pairs(const Fp8PackSource& source, int64_t lines, int64_t inner, uint32_t* to, int64_t to_stride) {
  with_float8(source.format, [&](auto small) { pack_pairs_as<decltype(small)>(source, lines, inner, to, to_stride); });
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

Fp8Kernels fp8_kernels() { return {largest_magnitude, quantize, dequantize, pack_lines, pack_pairs, finish}; }

}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE
