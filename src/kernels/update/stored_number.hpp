// SPDX-License-Identifier: Apache-2.0
// Storage formats of an element: the stored type (Stored) and the type of its arithmetic (Value). For kernels that are
// compiled once for each instruction set: every copy has its own namespace, or the linker would merge the copies'
// inline functions and could keep one that the processor at hand does not have. For the same reason nothing is included
// here that holds inline functions.
#pragma once

#include <cstdint>

#ifdef __clang__
#define ACCEL_VECTORISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define ACCEL_VECTORISE _Pragma("GCC ivdep")
#endif

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {

template <typename To, typename From>
inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "a change of type, not of size");
  To to;
  __builtin_memcpy(&to, &from, sizeof(to));
  return to;
}

template <typename T, typename V = T>
struct Plain {
  using Stored = T;
  using Value = V;
  static Value load(Stored stored) { return static_cast<Value>(stored); }
  static Stored store(Value value) { return static_cast<Stored>(value); }
};

struct BFloat16 {
  using Stored = uint16_t;
  using Value = float;
  static Value load(Stored stored) { return bits_as<float>(static_cast<uint32_t>(stored) << 16); }
  static Stored store(Value value) {
    const auto bits = bits_as<uint32_t>(value);
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;  // to nearest, ties to even
    return static_cast<Stored>(value != value ? 0x7fc0 : rounded);
  }
  // Stochastic rounding: `noise` is uniform over 32 bits.
  static Stored store_stochastically(Value value, uint32_t noise) {
    return static_cast<Stored>(value != value ? 0x7fc0 : (bits_as<uint32_t>(value) + (noise & 0xffff)) >> 16);
  }
};

// IEEE half precision with floating-point arithmetic alone, which every instruction set vectorises.
struct Half {
  using Stored = uint16_t;
  using Value = float;
  static Value load(Stored stored) {
    const uint32_t magnitude = stored & 0x7fffu;
    // Normal numbers: move the exponent up by 224 and scale it back by 2^-112, which also keeps infinity and NaN.
    const float normal = bits_as<float>((magnitude << 13) + (224u << 23)) * 0x1p-112f;
    // Subnormal ones: put the mantissa below 0.5 and subtract the 0.5.
    const float subnormal = bits_as<float>(magnitude | (126u << 23)) - 0.5f;
    const auto value = bits_as<uint32_t>(magnitude < 0x400 ? subnormal : normal);
    return bits_as<float>(value | (static_cast<uint32_t>(stored & 0x8000u) << 16));
  }
  static Stored store(Value value) {
    const auto bits = bits_as<uint32_t>(value);
    const uint32_t magnitude = bits & 0x7fffffffu;
    // Values that are too large become infinity here; the addition below rounds at the last bit of the half.
    const float scaled = (bits_as<float>(magnitude) * 0x1p112f) * 0x1p-110f;
    const uint32_t exponent = magnitude & 0x7f800000u;
    const uint32_t bias = exponent < 0x38800000u ? 0x38800000u : exponent;
    const auto rounded = bits_as<uint32_t>(bits_as<float>(bias + 0x07800000u) + scaled);
    const uint32_t half = ((rounded >> 13) & 0x7c00u) + (rounded & 0xfffu);
    return static_cast<Stored>((bits >> 16 & 0x8000u) | (magnitude > 0x7f800000u ? 0x7e00u : half));
  }
};

}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE
