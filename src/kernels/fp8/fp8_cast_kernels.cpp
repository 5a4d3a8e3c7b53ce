// Compiled several times with different instruction sets (see meson.build and stored_number.hpp).
#include "kernels/fp8/fp8_cast_kernels.hpp"

#include "kernels/format_dispatch.hpp"
#include "kernels/fp8/float8.hpp"

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {
namespace {

constexpr int64_t kChunk = 1024;  // numbers that are cast, and then looked at again if need be: they stay in the L1 cache
constexpr uint32_t kInfinity = 0x7f800000u;

template <typename Number>
inline uint32_t magnitude_bits(typename Number::Stored stored) {
  return bits_as<uint32_t>(Number::load(stored)) & 0x7fffffffu;
}

// Bits without the sign: they are ordered as the numbers are, and NaN comes last.
template <typename Number>
uint32_t largest_bits(const typename Number::Stored* from, int64_t count) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; i++) {
    const uint32_t magnitude = magnitude_bits<Number>(from[i]);
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

inline void raise(float& largest, uint32_t bits) {
  if (bits > bits_as<uint32_t>(largest)) largest = bits_as<float>(bits);
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
      raise(of_run, largest_bits<Number>(from + begin, length));
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
    const float magnitude = magnitudes[i], wanted = bits_as<float>(Small::kLargestNumber) / magnitude, scale = wanted * of_margin;
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

// `step` is 1 where each number has a scale of its own, else 0.
template <typename Number, typename Small, int kStep>
inline void cast(const typename Number::Stored* from, int64_t count, const float* scales, uint8_t* to) {
  ACCEL_VECTORISE
  for (int64_t i = 0; i < count; i++) to[i] = Small::store(Number::load(from[i]) * scales[i * kStep]);
}

template <typename Number, typename Small, int kStep>
int64_t count_saturated(const typename Number::Stored* from, int64_t count, const float* scales) {
  int64_t saturated = 0;
  for (int64_t i = 0; i < count; i++) {
    const uint32_t bits = bits_as<uint32_t>(Number::load(from[i]) * scales[i * kStep]) & 0x7fffffffu;
    saturated += bits > Small::kLargestKept && bits <= kInfinity ? 1 : 0;
  }
  return saturated;
}

// Adds to `counts`.
template <typename Number, typename Small>
void quantize_run(const typename Number::Stored* from, int64_t count, float scale, uint8_t* to, Fp8Counts& counts) {
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    const int64_t length = count - begin < kChunk ? count - begin : kChunk;
    const uint32_t largest = largest_bits<Number>(from + begin, length);
    cast<Number, Small, 0>(from + begin, length, &scale, to + begin);
    const auto scaled = bits_as<uint32_t>(bits_as<float>(largest) * scale);
    if (scaled > Small::kLargestKept) counts.saturated += count_saturated<Number, Small, 0>(from + begin, length, &scale);
    raise(counts.largest, largest);
  }
}

template <typename Number, typename Small>
Fp8Counts quantize_as(const typename Number::Stored* from, int64_t count, const float* scales, int64_t run,
                      uint8_t* to) {
  Fp8Counts counts;
  if (run > 1) {
    for_runs(count, run, scales, [&](float scale, int64_t begin, int64_t length) {
      quantize_run<Number, Small>(from + begin, length, scale, to + begin, counts);
    });
    return counts;
  }
  raise(counts.largest, largest_bits<Number>(from, count));
  cast<Number, Small, 1>(from, count, scales, to);
  counts.saturated = count_saturated<Number, Small, 1>(from, count, scales);
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

template <typename Number, typename Small>
void dequantize_as(const uint8_t* from, const float* scales, int64_t run, typename Number::Stored* to, int64_t count) {
  if (run == 1) return cast_back<Number, Small, 1>(from, scales, to, count);
  for_runs(count, run, scales, [&](const float& scale, int64_t begin, int64_t length) {
    cast_back<Number, Small, 0>(from + begin, &scale, to + begin, length);
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
