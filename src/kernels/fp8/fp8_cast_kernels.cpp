// SPDX-License-Identifier: Apache-2.0
// Compiled several times with different instruction sets (see meson.build and stored_number.hpp).
#include "kernels/fp8/fp8_cast_kernels.hpp"

#include "kernels/format_dispatch.hpp"
#include "kernels/fp8/float8.hpp"
#include "kernels/fp8/float8_lanes.hpp"
#include "kernels/fp8/float8_table.hpp"

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {
namespace {

constexpr int64_t kChunk =
    1024;  // numbers that are cast, and then looked at again if need be: they stay in the L1 cache
constexpr uint32_t kInfinity = 0x7f800000u;

inline int32_t signed_bits(float stored) { return bits_as<int32_t>(stored); }
inline int16_t signed_bits(uint16_t stored) { return bits_as<int16_t>(stored); }
template <typename Bits>
constexpr Bits kMagnitude = static_cast<Bits>(~(Bits{1} << (8 * sizeof(Bits) - 1)));

template <typename Number>
inline uint32_t magnitude_bits(typename Number::Stored stored) {
  return bits_as<uint32_t>(Number::load(stored)) & 0x7fffffffu;
}

// Magnitudes are ordered as their bits are, and NaN comes last.
template <typename Number>
float largest_of_run(const typename Number::Stored* from, int64_t count) {
  using Bits = decltype(signed_bits(*from));
  Bits largest = 0;
  for (int64_t i = 0; i < count; i++) {
    const auto magnitude = static_cast<Bits>(signed_bits(from[i]) & kMagnitude<Bits>);
    largest = magnitude > largest ? magnitude : largest;
  }
  return Number::load(bits_as<typename Number::Stored>(largest));
}

// By their bits: NaN is the largest.
inline void raise(float& largest, float magnitude) {
  if (bits_as<uint32_t>(magnitude) > bits_as<uint32_t>(largest)) largest = magnitude;
}

// Calls work(scale, begin, count) for each run of numbers with one scale.
template <typename Value, typename Work>
inline void for_runs(int64_t count, int64_t run, Value* values, const Work& work) {
  for (int64_t begin = 0; begin < count; begin += run, values++)
    work(*values, begin, count - begin < run ? count - begin : run);
}

template <typename Number>
void largest_magnitudes_as(const typename Number::Stored* from, int64_t count, int64_t run, float* largest) {
  if (run > 1)
    return for_runs(count, run, largest, [&](float& of_run, int64_t begin, int64_t length) {
      raise(of_run, largest_of_run<Number>(from + begin, length));
    });
  ACCEL_VECTORISE
  for (int64_t i = 0; i < count; i++) {
    const uint32_t magnitude = magnitude_bits<Number>(from[i]), former = bits_as<uint32_t>(largest[i]);
    largest[i] = bits_as<float>(magnitude > former ? magnitude : former);
  }
}

void largest_magnitudes(const ElementSpan& from, int64_t first, int64_t count, int64_t run, float* largest) {
  with_number(from.format, [&](auto number) {
    using Number = decltype(number);
    largest_magnitudes_as<Number>(static_cast<const typename Number::Stored*>(from.data) + first, count, run, largest);
  });
}

template <typename Small>
void find_scales_as(const float* magnitudes, int64_t count, float of_margin, float* scales, float* reciprocals) {
  ACCEL_VECTORISE
  for (int64_t i = 0; i < count; i++) {
    const float magnitude = magnitudes[i], wanted = bits_as<float>(Small::kLargestNumber) / magnitude,
                scale = wanted * of_margin;
    const bool has_scale = magnitude > 0 && magnitude <= 0x1.fffffep127f && wanted <= 0x1.fffffep127f;
    scales[i] = has_scale && scale >= 0x1p-126f ? scale : 1.0f;
    reciprocals[i] = 1.0f / scales[i];
  }
}

// The difference of the bits of two numbers is that of their exponents, less 1 where the mantissa makes it so.
template <typename Small>
void find_powers_as(const float* magnitudes, int64_t count, int32_t margin, float* scales, float* reciprocals) {
  ACCEL_VECTORISE
  for (int64_t i = 0; i < count; i++) {
    const auto magnitude = bits_as<int32_t>(magnitudes[i]);
    const int32_t any = ((static_cast<int32_t>(Small::kLargestNumber) - magnitude) >> 23) - margin;
    const int32_t inside = any < -126 ? -126 : any > 126 ? 126 : any;
    const int32_t exponent = magnitude > 0 && magnitude < static_cast<int32_t>(kInfinity) ? inside : 0;
    scales[i] = bits_as<float>((127 + exponent) << 23);
    reciprocals[i] = bits_as<float>((127 - exponent) << 23);
  }
}

void find_scales(const float* magnitudes, int64_t count, Float8Format format, int64_t margin, bool powers_of_two,
                 float* scales, float* reciprocals) {
  with_float8(format, [&](auto small) {
    using Small = decltype(small);
    const auto power = static_cast<int32_t>(margin);
    if (powers_of_two) return find_powers_as<Small>(magnitudes, count, power, scales, reciprocals);
    find_scales_as<Small>(magnitudes, count, bits_as<float>((127 - power) << 23), scales, reciprocals);
  });
}

// kStep is 1 where each number has a scale of its own, else 0.
template <typename Number, typename Small, int kStep>
void cast(const typename Number::Stored* from, int64_t count, const float* scales, uint8_t* to) {
  ACCEL_VECTORISE
  for (int64_t i = 0; i < count; i++) to[i] = Small::store(Number::load(from[i]) * scales[i * kStep]);
}

// No number is NaN. The largest magnitude that was cast, by its bits, where each number has a scale of its own.
template <typename Number, typename Small, int kStep>
uint32_t cast_numbers(const typename Number::Stored* from, int64_t count, const float* scales, uint8_t* to) {
  int32_t largest = 0;
  int64_t done = 0;
#ifdef ACCEL_HAS_CAST_LANES
  CastFloats largest_lanes{};
  for (; done + kCastBytes <= count; done += kCastBytes)
    cast_lanes<Number, Small, kStep>(from + done, scales + done * kStep, to + done, largest_lanes);
  for (int lane = 0; lane < kCastLanes; lane++) {
    const auto bits = bits_as<int32_t>(largest_lanes[lane]);
    largest = bits > largest ? bits : largest;
  }
#endif
  ACCEL_VECTORISE
  for (int64_t i = done; i < count; i++) {
    const auto bits = bits_as<uint32_t>(Number::load(from[i]) * scales[i * kStep]);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (kStep == 1) largest = static_cast<int32_t>(magnitude) > largest ? static_cast<int32_t>(magnitude) : largest;
    to[i] = static_cast<uint8_t>((Small::code_of(magnitude) & 0x7fu) | (bits >> 24 & 0x80u));
  }
  return static_cast<uint32_t>(largest);
}

typedef uint32_t NumberPair __attribute__((aligned(1), may_alias));
typedef uint16_t CodePair __attribute__((aligned(1), may_alias));

// Two bfloat16 numbers of a register's 32 bits at a time, which need not be widened. No number is NaN.
template <typename Small>
void cast_pairs(const uint16_t* from, int64_t count, float scale, uint8_t* to) {
  // Not auto, whose deduction drops the attributes of a type.
  const NumberPair* const pairs = reinterpret_cast<const NumberPair*>(from);
  CodePair* const codes = reinterpret_cast<CodePair*>(to);
  int64_t done = 0;
#ifdef ACCEL_HAS_CAST_LANES
  for (; done + kCastBytes <= count; done += kCastBytes) cast_pair_lanes<Small>(from + done, scale, to + done);
#endif
  const int64_t end = count / 2;
  ACCEL_VECTORISE
  for (int64_t i = done / 2; i < end; i++) {
    const uint32_t pair = pairs[i], magnitudes = pair & 0x7fff7fffu;
    const uint32_t even = Small::code_of(bits_as<uint32_t>(bits_as<float>(magnitudes << 16) * scale));
    const uint32_t odd = Small::code_of(bits_as<uint32_t>(bits_as<float>(magnitudes & 0xffff0000u) * scale));
    const uint32_t both = (even & 0xffu) | (odd << 8 & 0xff00u), signs = (pair >> 8 & 0xffu) | (pair >> 16 & 0xff00u);
    codes[i] = static_cast<uint16_t>((both & 0x7f7fu) | (signs & 0x8080u));
  }
  if (count % 2 != 0) cast_numbers<BFloat16, Small, 0>(from + count - 1, 1, &scale, to + count - 1);
}

template <typename Number, typename Small>
struct FiniteCast {
  static void run(const typename Number::Stored* from, int64_t count, float scale, uint8_t* to) {
    cast_numbers<Number, Small, 0>(from, count, &scale, to);
  }
};
template <typename Small>
struct FiniteCast<BFloat16, Small> {
  static void run(const uint16_t* from, int64_t count, float scale, uint8_t* to) {
    cast_pairs<Small>(from, count, scale, to);
  }
};

template <typename Number, typename Small, int kStep>
int64_t count_saturated(const typename Number::Stored* from, int64_t count, const float* scales) {
  int64_t saturated = 0;
  for (int64_t i = 0; i < count; i++) {
    const uint32_t bits = bits_as<uint32_t>(Number::load(from[i]) * scales[i * kStep]) & 0x7fffffffu;
    saturated += bits > Small::kLargestKept && bits <= kInfinity ? 1 : 0;
  }
  return saturated;
}

bool is_nan(float number) { return (bits_as<uint32_t>(number) & 0x7fffffffu) > kInfinity; }

// A chunk of numbers with one scale.
template <typename Number, typename Small>
Fp8Counts quantize_shared(const typename Number::Stored* from, int64_t count, const float* scale, uint8_t* to) {
  Fp8Counts counts{largest_of_run<Number>(from, count), 0};
  if (is_nan(counts.largest))
    cast<Number, Small, 0>(from, count, scale, to);
  else
    FiniteCast<Number, Small>::run(from, count, *scale, to);
  if (bits_as<uint32_t>(counts.largest * *scale) > Small::kLargestKept)
    counts.saturated = count_saturated<Number, Small, 0>(from, count, scale);
  return counts;
}

// A chunk of numbers with a scale of each.
template <typename Number, typename Small>
Fp8Counts quantize_each(const typename Number::Stored* from, int64_t count, const float* scales, uint8_t* to) {
  Fp8Counts counts{largest_of_run<Number>(from, count), 0};
  uint32_t scaled = ~0u;
  if (is_nan(counts.largest))
    cast<Number, Small, 1>(from, count, scales, to);
  else
    scaled = cast_numbers<Number, Small, 1>(from, count, scales, to);
  if (scaled > Small::kLargestKept) counts.saturated = count_saturated<Number, Small, 1>(from, count, scales);
  return counts;
}

// Calls work(begin, length) for each chunk of so many numbers.
template <typename Work>
inline void for_chunks(int64_t count, Fp8Counts& sum, const Work& work) {
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    const Fp8Counts found = work(begin, count - begin < kChunk ? count - begin : kChunk);
    raise(sum.largest, found.largest);
    sum.saturated += found.saturated;
  }
}

template <typename Number, typename Small>
Fp8Counts quantize_as(const typename Number::Stored* from, int64_t count, const float* scales, int64_t run,
                      uint8_t* to) {
  Fp8Counts counts;
  if (run == 1)
    for_chunks(count, counts, [&](int64_t begin, int64_t length) {
      return quantize_each<Number, Small>(from + begin, length, scales + begin, to + begin);
    });
  else if (run == kFp8Block)
    for_chunks(count, counts, [&](int64_t begin, int64_t length) {
      float each[kChunk];
      for (int64_t start = 0; start < length; start += kFp8Block)
        for (int64_t i = 0; i < kFp8Block; i++) each[start + i] = scales[(begin + start) / kFp8Block];
      return quantize_each<Number, Small>(from + begin, length, each, to + begin);
    });
  else
    for_runs(count, run, scales, [&](const float& scale, int64_t begin, int64_t length) {
      for_chunks(length, counts, [&](int64_t start, int64_t size) {
        return quantize_shared<Number, Small>(from + begin + start, size, &scale, to + begin + start);
      });
    });
  return counts;
}

Fp8Counts quantize(const ElementSpan& from, int64_t first, int64_t count, const float* scales, int64_t run,
                   Float8Format format, uint8_t* to) {
  Fp8Counts counts;
  with_number(from.format, [&](auto number) {
    using Number = decltype(number);
    with_float8(format, [&](auto small) {
      counts = quantize_as<Number, decltype(small)>(static_cast<const typename Number::Stored*>(from.data) + first,
                                                    count, scales, run, to + first);
    });
  });
  return counts;
}

template <typename Number, typename Small, int kStep>
inline void cast_back(const uint8_t* from, const float* scales, typename Number::Stored* to, int64_t count) {
  ACCEL_VECTORISE
  for (int64_t i = 0; i < count; i++) to[i] = Number::store(Small::load(from[i]) * scales[i * kStep]);
}

// Codes with one scale.
template <typename Number, typename Small>
void cast_back_shared(const uint8_t* from, float scale, typename Number::Stored* to, int64_t count) {
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    const int64_t end = count - begin < kChunk ? count : begin + kChunk;
    if (has_special_codes<Small>(from + begin, end - begin)) {
      cast_back<Number, Small, 0>(from + begin, &scale, to + begin, end - begin);
      continue;
    }
    ACCEL_VECTORISE
    for (int64_t i = begin; i < end; i++) to[i] = Number::store(Small::load_finite(from[i]) * scale);
  }
}

template <typename Number, typename Small>
struct SharedCastBack {
  static void run(const uint8_t* from, float scale, typename Number::Stored* to, int64_t count) {
#ifndef ACCEL_TABLE_BYTES
    constexpr int64_t kMinCount = 4096;  // of which a table in memory pays
    if (count >= kMinCount && sizeof(typename Number::Stored) == sizeof(uint16_t)) {
      typename Number::Stored numbers[256];
      for (int code = 0; code < 256; code++)
        numbers[code] = Number::store(Small::load(static_cast<uint8_t>(code)) * scale);
#pragma GCC unroll 8
      for (int64_t i = 0; i < count; i++) to[i] = numbers[from[i]];
      return;
    }
#endif
    cast_back_shared<Number, Small>(from, scale, to, count);
  }
};

#ifdef ACCEL_TABLE_BYTES
template <typename Number, typename Small, int kMantissaBits>
void cast_back_by_table(const uint8_t* from, float scale, uint16_t* to, int64_t count) {
  constexpr int64_t kMinCount = 256;  // of which a table pays
  int64_t done = 0;
  if (count >= kMinCount) {
    const Float8Table<Number, Small, kMantissaBits> table(scale);
    for (int64_t end = 0; table.is_exact() && done + kTableBytes <= count; done = end) {
      end = done + (count - done < kChunk ? (count - done) / kTableBytes * kTableBytes : kChunk);
      if (has_special_codes<Small>(from + done, end - done))
        cast_back<Number, Small, 0>(from + done, &scale, to + done, end - done);
      else
        for (int64_t i = done; i < end; i += kTableBytes) table.cast(from + i, to + i);
    }
  }
  cast_back_shared<Number, Small>(from + done, scale, to + done, count - done);
}

template <typename Small>
struct SharedCastBack<BFloat16, Small> {
  static void run(const uint8_t* from, float scale, uint16_t* to, int64_t count) {
    cast_back_by_table<BFloat16, Small, 7>(from, scale, to, count);
  }
};
template <typename Small>
struct SharedCastBack<Half, Small> {
  static void run(const uint8_t* from, float scale, uint16_t* to, int64_t count) {
    cast_back_by_table<Half, Small, 10>(from, scale, to, count);
  }
};
#endif

template <typename Number, typename Small>
void dequantize_as(const uint8_t* from, const float* scales, int64_t run, typename Number::Stored* to, int64_t count) {
  if (run == 1) return cast_back<Number, Small, 1>(from, scales, to, count);
  for_runs(count, run, scales, [&](const float& scale, int64_t begin, int64_t length) {
    SharedCastBack<Number, Small>::run(from + begin, scale, to + begin, length);
  });
}

void dequantize(const uint8_t* from, Float8Format format, const float* scales, int64_t run, const ElementSpan& to,
                int64_t first, int64_t count) {
  with_number(to.format, [&](auto number) {
    using Number = decltype(number);
    with_float8(format, [&](auto small) {
      dequantize_as<Number, decltype(small)>(from + first, scales, run,
                                             static_cast<typename Number::Stored*>(to.data) + first, count);
    });
  });
}

}  // namespace

Fp8CastKernels fp8_cast_kernels() { return {largest_magnitudes, find_scales, quantize, dequantize}; }

}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE
