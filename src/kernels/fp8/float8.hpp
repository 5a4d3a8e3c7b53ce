// SPDX-License-Identifier: Apache-2.0
// 8-bit floating-point numbers, E4M3 without infinities and E5M2 (Micikevicius et al., "FP8 Formats for Deep Learning",
// 2022, https://arxiv.org/abs/2209.05433). A value that is too large is stored as the largest number, NaN as NaN. For
// kernels that are compiled once for each instruction set, see stored_number.hpp.
#pragma once

#include "kernels/fp8/fp8_format.hpp"
#include "kernels/update/stored_number.hpp"

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {

// `kLargest` is the largest number and `kFirstSpecial` the first code, without its sign, of an infinity or a NaN.
template <int kMantissaBits, int kBias, uint32_t kLargest, uint32_t kFirstSpecial>
struct Float8 {
  using Stored = uint8_t;
  using Value = float;

  static constexpr int kMantissa = kMantissaBits;
  static constexpr uint32_t kLargestNumber = kLargest, kFirstSpecialCode = kFirstSpecial;
  // The largest float32, by its bits, that is rounded to the largest number; ties go to an even mantissa.
  static constexpr uint32_t kLargestKept =
      kLargest + (1u << (22 - kMantissaBits)) - (kLargest >> (23 - kMantissaBits) & 1u);

  static Value load(Stored stored) {
    const uint32_t magnitude = stored & 0x7fu;
    const float normal = bits_as<float>((magnitude << kShift) + kBiasDifference);
    const float subnormal = static_cast<float>(static_cast<int32_t>(magnitude)) * kSmallest;
    const auto finite = bits_as<uint32_t>(magnitude < (1u << kMantissaBits) ? subnormal : normal);
    const uint32_t quiet = magnitude > 0x7cu ? 0x7fc00000u : 0x7f800000u;  // NaN, or the infinity of E5M2
    const uint32_t value = magnitude >= kFirstSpecial ? magnitude << kShift | quiet : finite;
    return bits_as<float>(value | (static_cast<uint32_t>(stored & 0x80u) << 24));
  }

  static Stored store(Value value) {
    const auto bits = bits_as<uint32_t>(value);
    const uint32_t magnitude = bits & 0x7fffffffu, code = code_of(magnitude) & 0x7fu;
    return static_cast<Stored>((bits >> 24 & 0x80u) | (magnitude > 0x7f800000u ? 0x7fu : code));
  }

  // The code of a magnitude, by its bits, in the last 7 bits of the result; not of NaN. To nearest, ties to even: a
  // float32 is added whose last bit is that of the stored mantissa. Its own last bits are the exponent, less the 1 that
  // the leading bit of the mantissa adds.
  static uint32_t code_of(uint32_t bits) {
    const auto any = static_cast<int32_t>(bits);  // signed: every instruction set compares these
    const int32_t magnitude = any < static_cast<int32_t>(kLargest) ? any : static_cast<int32_t>(kLargest);
    const int32_t own_exponent = magnitude & 0x7f800000;
    const int32_t exponent = own_exponent > kSmallestNormal ? own_exponent : kSmallestNormal;
    const int32_t rounder = exponent + (exponent >> kShift) + kRounder;
    return bits_as<uint32_t>(bits_as<float>(magnitude) + bits_as<float>(rounder));
  }

  // The number of a code that is no infinity and no NaN. A subnormal code has an exponent too few to be read as it is,
  // and a leading bit too many, which is subtracted.
  static Value load_finite(Stored stored) {
    const int32_t magnitude = stored & 0x7f, subnormal = magnitude < (1 << kMantissaBits) ? -1 : 0;
    const int32_t bits = (magnitude << kShift) + static_cast<int32_t>(kBiasDifference) + (subnormal & 1 << 23);
    const auto finite = bits_as<uint32_t>(bits_as<float>(bits) - bits_as<float>(subnormal & kSmallestNormal));
    return bits_as<float>(finite | (static_cast<uint32_t>(stored & 0x80u) << 24));
  }

  static constexpr int kShift = 23 - kMantissaBits;
  static constexpr uint32_t kBiasDifference = (127u - kBias) << 23;
  static constexpr int32_t kSmallestNormal = static_cast<int32_t>(kBiasDifference + (1u << 23));
  static constexpr int32_t kRounder = (kShift << 23) + ((-(128 - kBias) * (1 << kMantissaBits)) & 0x7f);

 private:
  static constexpr float kSmallest = 1.0f / (1u << (kBias - 1 + kMantissaBits));
};

using Float8E4M3 = Float8<3, 7, 0x43e00000u /* 448 */, 0x7fu>;
using Float8E5M2 = Float8<2, 15, 0x47600000u /* 57344 */, 0x7cu>;

namespace {

// Whether a code is an infinity or a NaN.
template <typename Small>
inline bool has_special_codes(const uint8_t* from, int64_t count) {
  uint8_t largest = 0;
  for (int64_t i = 0; i < count; i++) {
    const uint8_t magnitude = from[i] & 0x7f;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest >= Small::kFirstSpecialCode;
}

// Calls work(number) with the Float8 of a format.
template <typename Work>
inline void with_float8(Float8Format format, const Work& work) {
  if (format == Float8Format::kE4M3) return work(Float8E4M3());
  work(Float8E5M2());
}

}  // namespace
}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE
