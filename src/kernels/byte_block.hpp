// Blocks of numbers in a byte each: a floating-point number of 3 bits of mantissa and 4 (signed) or 5 (unsigned) bits
// of exponent, times a power of two that the block shares. As the common factor is a power of two, decoding is exact,
// and what was decoded encodes to itself. Included by kernels only, see stored_number.hpp.
#pragma once

#include "kernels/stored_number.hpp"

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {

// Even over 32 bits for numbers in a row (a finalizer of multiplications and shifts).
inline uint32_t noise_of(uint32_t number) {
  number ^= number >> 16;
  number *= 0x7feb352du;
  number ^= number >> 15;
  number *= 0x846ca68bu;
  return number ^ (number >> 16);
}

template <bool kSigned>
struct ByteBlock {
  static constexpr uint32_t kMantissa = 3;
  static constexpr uint32_t kShift = 23 - kMantissa;
  static constexpr uint32_t kTop = kSigned ? 15 : 31;  // the exponent field of [1, 2)
  static constexpr uint32_t kOffset = (127 - kTop) << kMantissa;
  static constexpr uint32_t kLargest = kSigned ? 0x7f : 0xff;       // 1.875
  static constexpr float kSpacing = kSigned ? 0x1p-17f : 0x1p-33f;  // of the numbers below the smallest normal one
  static constexpr float kSmallestNormal = kSpacing * 8;

  static float decode(uint8_t code, float scale) {
    const uint32_t magnitude = code & kLargest;
    const float normal = bits_as<float>((magnitude + kOffset) << kShift);
    const float value =
        (magnitude < 8 ? static_cast<float>(static_cast<int32_t>(magnitude)) * kSpacing : normal) * scale;
    return kSigned && (code & 0x80) != 0 ? -value : value;
  }

  // `chance` has 20 bits; half of that rounds to nearest. A second moment above 0 stays above 0: it divides.
  static uint8_t encode(float value, float inverse_scale, uint32_t chance) {
    const float scaled = value * inverse_scale;
    const uint32_t bits = bits_as<uint32_t>(scaled);
    const float magnitude = bits_as<float>(bits & 0x7fffffffu);
    const uint32_t normal = (((bits & 0x7fffffffu) + chance) >> kShift) - kOffset;
    const float small = magnitude < kSmallestNormal ? magnitude : kSmallestNormal;
    const auto below = static_cast<uint32_t>(
        static_cast<int32_t>(small * (1 / kSpacing) + static_cast<float>(static_cast<int32_t>(chance)) * 0x1p-20f));
    uint32_t code = magnitude < kSmallestNormal ? below : normal;
    code = code > kLargest ? kLargest : code;
    if (kSigned) return static_cast<uint8_t>(code | (bits >> 24 & 0x80u));
    return static_cast<uint8_t>(code == 0 && magnitude > 0 ? 1 : code);
  }

  // The smallest power of two that brings the largest magnitude to at most 1.875. Infinity and NaN make the block NaN.
  static float scale_of(const float* values, int64_t count) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; i++) {
      const uint32_t magnitude = bits_as<uint32_t>(values[i]) & 0x7fffffffu;
      largest = magnitude > largest ? magnitude : largest;
    }
    const uint32_t bits = (largest + 0x0fffffu) & 0x7f800000u;
    return bits_as<float>(bits >= 0x7f000000u ? 0x7fc00000u : bits);
  }

  static void load(const uint8_t* codes, float scale, int64_t count, float* values) {
    ACCEL_VECTORISE
    for (int64_t i = 0; i < count; i++) values[i] = decode(codes[i], scale);
  }

  // Returns the scale. `number` is that of the first element's noise.
  static float store(const float* values, int64_t count, bool by_chance, uint32_t number, uint8_t* codes) {
    const float scale = scale_of(values, count);
    const float inverse = bits_as<float>(0x7f000000u - bits_as<uint32_t>(scale));
    const uint32_t mask = by_chance ? 0xfffffu : 0;
    const uint32_t constant = by_chance ? 0 : 0x80000u;
    ACCEL_VECTORISE
    for (int64_t i = 0; i < count; i++) {
      const uint32_t chance = (noise_of(number + static_cast<uint32_t>(i)) & mask) + constant;
      codes[i] = encode(values[i], inverse, chance);
    }
    return scale;
  }
};

}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE
