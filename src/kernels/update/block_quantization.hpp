// SPDX-License-Identifier: Apache-2.0
// Block-wise 8-bit quantization: each number is an 8-bit float of 3 bits of mantissa and 4 (signed) or 5 (unsigned)
// bits of exponent, times a scale that its block shares. Decoding is exact, because the scale is a power of two, and
// decoded numbers encode to themselves. Included by kernels only, see stored_number.hpp.
#pragma once

#include "kernels/update/stored_number.hpp"

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {

// A hash of consecutive numbers, uniform over 32 bits.
inline uint32_t noise_of(uint32_t number) {
  number *= 0x9e3779b1u;
  number ^= number >> 15;
  number *= 0x85ebca77u;
  return number ^ (number >> 13);
}

inline void make_noise(uint32_t first, int64_t count, uint32_t* noise) {
  ACCEL_VECTORISE
  for (int64_t i = 0; i < count; i++) noise[i] = noise_of(first + static_cast<uint32_t>(i));
}

// Compares magnitudes by their bits: infinity and NaN are above all numbers.
inline uint32_t larger_magnitude(uint32_t largest, float value) {
  const uint32_t magnitude = bits_as<uint32_t>(value) & 0x7fffffffu;
  return magnitude > largest ? magnitude : largest;
}

template <bool kSigned>
struct BlockQuantization {
  static constexpr uint32_t kMantissa = 3;
  static constexpr uint32_t kShift = 23 - kMantissa;
  static constexpr uint32_t kTop = kSigned ? 15 : 31;  // the exponent field of [1, 2)
  static constexpr uint32_t kOffset = (127 - kTop) << kMantissa;
  static constexpr uint32_t kLargest = kSigned ? 0x7f : 0xff;       // 1.875
  static constexpr float kSpacing = kSigned ? 0x1p-17f : 0x1p-33f;  // of the numbers below the smallest normal one
  static constexpr float kSmallestNormal = kSpacing * 8;

  static float decode(uint8_t code, float scale) {
    const uint32_t normal = (static_cast<uint32_t>(code & kLargest) << kShift) + (kOffset << kShift);
    const auto below = bits_as<uint32_t>(bits_as<float>(normal + (8u << kShift)) - kSmallestNormal);
    // Both agree at the smallest normal number; elsewhere the smaller one is right.
    const float value = bits_as<float>(below < normal ? below : normal) * scale;
    const uint32_t sign = kSigned ? (code & 0x80u) << 24 : 0;
    return bits_as<float>(bits_as<uint32_t>(value) | sign);
  }

  // `noise` has 20 bits; half of their range rounds to nearest. A second moment above 0 stays above 0: it is a divisor.
  static uint8_t encode(float value, float inverse_scale, uint32_t noise) {
    const float scaled = value * inverse_scale;
    const uint32_t magnitude = bits_as<uint32_t>(scaled) & 0x7fffffffu;
    // Adding the smallest normal number to a subnormal one moves its bits to where the code has them; normal ones would
    // become too small.
    const uint32_t lifted = bits_as<uint32_t>(bits_as<float>(magnitude) + kSmallestNormal) - (8u << kShift);
    const uint32_t bits = lifted > magnitude ? lifted : magnitude;
    uint32_t code = ((bits + noise) >> kShift) - kOffset;
    code = code > kLargest ? kLargest : code;
    if (kSigned) return static_cast<uint8_t>(code | (bits_as<uint32_t>(scaled) >> 24 & 0x80u));
    const uint32_t least = magnitude != 0 ? 1 : 0;
    return static_cast<uint8_t>(code < least ? least : code);
  }

  // The smallest power of two that brings the largest magnitude to at most 1.875. Infinity and NaN make the block NaN.
  static float scale_for(uint32_t largest_magnitude) {
    const uint32_t bits = (largest_magnitude + 0x0fffffu) & 0x7f800000u;
    return bits_as<float>(bits >= 0x7f000000u ? 0x7fc00000u : bits);
  }

  static void load(const uint8_t* codes, float scale, int64_t count, float* values) {
    ACCEL_VECTORISE
    for (int64_t i = 0; i < count; i++) values[i] = decode(codes[i], scale);
  }

  // Rounds to nearest without noise.
  static void store(const float* values, float scale, int64_t count, const uint32_t* noise, uint8_t* codes) {
    const float inverse = bits_as<float>(0x7f000000u - bits_as<uint32_t>(scale));
    if (noise == nullptr) {
      ACCEL_VECTORISE
      for (int64_t i = 0; i < count; i++) codes[i] = encode(values[i], inverse, 1u << (kShift - 1));
    } else {
      // The upper bits for the first moment and the lower ones for the second.
      ACCEL_VECTORISE
      for (int64_t i = 0; i < count; i++)
        codes[i] = encode(values[i], inverse, kSigned ? noise[i] >> (32 - kShift) : noise[i] & ((1u << kShift) - 1));
    }
  }

  // Returns the scale.
  static float store(const float* values, int64_t count, const uint32_t* noise, uint8_t* codes) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; i++) largest = larger_magnitude(largest, values[i]);
    const float scale = scale_for(largest);
    store(values, scale, count, noise, codes);
    return scale;
  }
};

}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE
