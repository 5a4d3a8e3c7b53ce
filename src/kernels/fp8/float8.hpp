// 8-bit floating-point numbers, E4M3 without infinities and E5M2 (Micikevicius et al., "FP8 Formats for Deep Learning",
// 2022, https://arxiv.org/abs/2209.05433). A value that is too large is stored as the largest number, NaN as NaN. For
// kernels that are compiled once for each instruction set, see stored_number.hpp.
#pragma once

#include "kernels/fp8/fp8_cast_kernels.hpp"
#include "kernels/update/stored_number.hpp"

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {

// `kLargest` is the largest number and `kFirstSpecial` the first code, without its sign, of an infinity or a NaN.
template <int kMantissaBits, int kBias, uint32_t kLargest, uint32_t kFirstSpecial>
struct Float8 {
  using Stored = uint8_t;
  using Value = float;

  static constexpr uint32_t kLargestNumber = kLargest;
  // The largest float32, by its bits, that is rounded to the largest number; ties go to an even mantissa.
  static constexpr uint32_t kLargestKept =
      kLargest + (1u << (22 - kMantissaBits)) - (kLargest >> (23 - kMantissaBits) & 1u);

  static Value load(Stored stored) {
    const uint32_t magnitude = stored & 0x7fu;
    const float normal = bits_as<float>((magnitude << kShift) + kBiasDifference);
    const float subnormal = static_cast<float>(static_cast<int32_t>(magnitude)) * kSmallest;
    const auto finite = bits_as<uint32_t>(magnitude < (1u << kMantissaBits) ? subnormal : normal);
    const uint32_t value = magnitude >= kFirstSpecial ? magnitude << kShift | 0x7f800000u : finite;
    return bits_as<float>(value | (static_cast<uint32_t>(stored & 0x80u) << 24));
  }

  // To nearest, ties to even: an addition moves the last bit of the stored mantissa to that of a float32.
  static Stored store(Value value) {
    const auto bits = bits_as<uint32_t>(value);
    const uint32_t any = bits & 0x7fffffffu;
    const uint32_t magnitude = any < kLargest ? any : kLargest;
    const uint32_t own_exponent = magnitude & 0x7f800000u;
    const uint32_t exponent = own_exponent > kSmallestNormal ? own_exponent : kSmallestNormal;
    const uint32_t rounder = exponent + (static_cast<uint32_t>(kShift) << 23);
    const uint32_t mantissa = bits_as<uint32_t>(bits_as<float>(magnitude) + bits_as<float>(rounder)) - rounder;
    const uint32_t rounded = ((exponent - kSmallestNormal) >> kShift) + mantissa;
    return static_cast<Stored>((bits >> 24 & 0x80u) | (any > 0x7f800000u ? 0x7fu : rounded));
  }

 private:
  static constexpr int kShift = 23 - kMantissaBits;
  static constexpr uint32_t kBiasDifference = (127u - kBias) << 23;
  static constexpr uint32_t kSmallestNormal = kBiasDifference + (1u << 23);
  static constexpr float kSmallest = 1.0f / (1u << (kBias - 1 + kMantissaBits));
};

using Float8E4M3 = Float8<3, 7, 0x43e00000u /* 448 */, 0x7fu>;
using Float8E5M2 = Float8<2, 15, 0x47600000u /* 57344 */, 0x7cu>;

namespace {

// Calls work(number) with the Float8 of a format.
template <typename Work>
inline void with_float8(Float8Format format, const Work& work) {
  if (format == Float8Format::kE4M3) return work(Float8E4M3());
  work(Float8E5M2());
}

}  // namespace
}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE
