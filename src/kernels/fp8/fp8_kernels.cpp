// Compiled several times with different instruction sets (see meson.build and stored_number.hpp).
#include "kernels/fp8/fp8_kernels.hpp"

#include "kernels/format_dispatch.hpp"
#include "kernels/fp8/float8.hpp"
#include "kernels/matmul/transpose.hpp"

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {
namespace {

constexpr float kOne = 1;

template <typename Small>
inline uint32_t bfloat16_of(uint8_t stored, float scale) {
  return bits_as<uint32_t>(Small::load(stored) * scale) >> 16;
}

// One pair of `count` lines of a transposed source, with a scale of each line (step 1) or of all (step 0).
template <typename Small, int kStep>
inline void scaled_pair_of_lines(const uint8_t* even, const uint8_t* odd, int64_t count, const float* scales,
                                 uint32_t* to) {
  ACCEL_VECTORISE
  for (int64_t i = 0; i < count; i++) {
    const float scale = scales[i * kStep];
    to[i] = bfloat16_of<Small>(even[i], scale) | bfloat16_of<Small>(odd[i], scale) << 16;
  }
}

template <typename Small>
inline void pair_of_lines(const Fp8PackSource& source, int64_t line, int64_t pair, int64_t count, uint32_t* to) {
  const uint8_t* const even = source.data + 2 * pair * source.stride + line;
  const uint8_t* const odd = even + source.stride;
  if (source.scales.data == nullptr) return scaled_pair_of_lines<Small, 0>(even, odd, count, &kOne, to);
  scaled_pair_of_lines<Small, 1>(even, odd, count, source.scales.from(line, 2 * pair).data, to);
}

// `count` neighbours of a line of a source that is not transposed, which are its pairs.
template <typename Small>
inline void numbers_of_line(const uint8_t* from, int64_t count, float scale, uint16_t* to) {
  ACCEL_VECTORISE
  for (int64_t i = 0; i < count; i++) to[i] = static_cast<uint16_t>(bfloat16_of<Small>(from[i], scale));
}

template <typename Small>
inline void pairs_of_line(const Fp8PackSource& source, int64_t line, int64_t pair, int64_t count, uint16_t* to) {
  const uint8_t* const from = source.data + line * source.stride + 2 * pair;
  if (source.scales.data == nullptr) return numbers_of_line<Small>(from, 2 * count, kOne, to);
  for (int64_t i = 0; i < 2 * count; i += kFp8Block)
    numbers_of_line<Small>(from + i, 2 * count - i < kFp8Block ? 2 * count - i : kFp8Block,
                           *source.scales.from(line, 2 * pair + i).data, to + i);
}

// A single pair, whose second element may be missing.
template <typename Small>
inline uint32_t single_pair(const Fp8PackSource& source, int64_t line, int64_t pair, int64_t inner) {
  const float scale = source.scales.data == nullptr ? kOne : *source.scales.from(line, 2 * pair).data;
  const auto element = [&](int64_t k) {
    return bfloat16_of<Small>(source.data[source.transposed ? k * source.stride + line : line * source.stride + k],
                              scale);
  };
  return element(2 * pair) | (2 * pair + 1 < inner ? element(2 * pair + 1) << 16 : 0u);
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

Fp8Kernels fp8_kernels() { return {pack_lines, pack_pairs, finish}; }

}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE
