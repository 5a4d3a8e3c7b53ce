// SPDX-License-Identifier: Apache-2.0
// Casts of whole vectors to 8 bits with SSE2 or AVX2, whose instructions that narrow numbers saturate: compilers put
// masks before them that codes need not, and SSE2 has no minimum of integers. For kernels that are compiled once for
// each instruction set, see stored_number.hpp.
#pragma once

#include "kernels/fp8/float8.hpp"

#if defined(__SSE2__) && !defined(__AVX512BW__)
#define ACCEL_HAS_CAST_LANES
namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {
namespace {

#ifdef __AVX2__
constexpr int64_t kCastBytes = 32;
#else
constexpr int64_t kCastBytes = 16;
#endif
constexpr int64_t kCastLanes = kCastBytes / 4;
typedef float CastFloats __attribute__((vector_size(kCastBytes)));
typedef int32_t CastInts __attribute__((vector_size(kCastBytes)));
typedef int16_t CastWords __attribute__((vector_size(kCastBytes)));
typedef char CastChars __attribute__((vector_size(kCastBytes)));

#ifdef __AVX2__
inline CastFloats smaller(CastFloats a, CastFloats b) { return __builtin_ia32_minps256(a, b); }
inline CastFloats larger_floats(CastFloats a, CastFloats b) { return __builtin_ia32_maxps256(a, b); }
inline CastWords to_words(CastInts a, CastInts b) { return __builtin_ia32_packssdw256(a, b); }
inline CastChars to_signed(CastWords a, CastWords b) { return __builtin_ia32_packsswb256(a, b); }
inline CastChars to_unsigned(CastWords a, CastWords b) { return __builtin_ia32_packuswb256(a, b); }
#else
inline CastFloats smaller(CastFloats a, CastFloats b) { return __builtin_ia32_minps(a, b); }
inline CastFloats larger_floats(CastFloats a, CastFloats b) { return __builtin_ia32_maxps(a, b); }
inline CastWords to_words(CastInts a, CastInts b) { return __builtin_ia32_packssdw128(a, b); }
inline CastChars to_signed(CastWords a, CastWords b) { return __builtin_ia32_packsswb128(a, b); }
inline CastChars to_unsigned(CastWords a, CastWords b) { return __builtin_ia32_packuswb128(a, b); }
#endif

// Stores codes without signs and bytes that have the signs. `kNarrowings` is how often they were narrowed: with AVX2 an
// instruction does it in each half of a register.
template <int kNarrowings>
inline void store_codes(CastChars codes, CastChars signs, uint8_t* to) {
  constexpr char kSign = static_cast<char>(0x80);
  CastChars signed_codes = codes | (signs & kSign);
#ifdef __AVX2__
  if (kNarrowings == 1) {
    typedef long long Quads __attribute__((vector_size(kCastBytes)));
    signed_codes = (CastChars)__builtin_ia32_permdi256((Quads)signed_codes, 0xd8);
  } else {
    signed_codes = (CastChars)__builtin_ia32_permvarsi256((CastInts)signed_codes, CastInts{0, 4, 1, 5, 2, 6, 3, 7});
  }
#endif
  __builtin_memcpy(to, &signed_codes, sizeof(signed_codes));
}

// Float8::code_of() of lanes, without the bits before the code.
template <typename Small>
inline CastInts codes_of(CastFloats magnitudes) {
  const CastFloats capped = smaller(magnitudes, CastFloats{} + bits_as<float>(Small::kLargestNumber));
  const CastFloats exponents =
      larger_floats((CastFloats)((CastInts)capped & 0x7f800000), CastFloats{} + bits_as<float>(Small::kSmallestNormal));
  const CastInts rounders = (CastInts)exponents + ((CastInts)exponents >> Small::kShift) + Small::kRounder;
  return (CastInts)(capped + (CastFloats)rounders) & 0x7f;
}

inline CastFloats load_lanes(Plain<float> /*number*/, const float* from) {
  CastFloats lanes;
  __builtin_memcpy(&lanes, from, sizeof(lanes));
  return lanes;
}

inline CastFloats load_lanes(BFloat16 /*number*/, const uint16_t* from) {
  typedef uint16_t Halves __attribute__((vector_size(kCastBytes / 2)));
  Halves halves;
  __builtin_memcpy(&halves, from, sizeof(halves));
  return (CastFloats)(__builtin_convertvector(halves, CastInts) << 16);
}

inline CastFloats load_lanes(Half /*number*/, const uint16_t* from) {
  CastFloats lanes;
  for (int64_t i = 0; i < kCastLanes; i++) lanes[i] = Half::load(from[i]);
  return lanes;
}

// kCastBytes numbers that are not NaN, with one scale (step 0) or one of each (step 1). Raises `largest` to the
// magnitudes that are cast.
template <typename Number, typename Small, int kStep>
inline void cast_lanes(const typename Number::Stored* from, const float* scales, uint8_t* to, CastFloats& largest) {
  CastInts numbers[4], codes[4];
#pragma GCC unroll 4
  for (int part = 0; part < 4; part++) {
    CastFloats scale = CastFloats{} + *scales;
    if (kStep == 1) __builtin_memcpy(&scale, scales + part * kCastLanes, sizeof(scale));
    numbers[part] = (CastInts)(load_lanes(Number(), from + part * kCastLanes) * scale);
    const auto magnitudes = (CastFloats)(numbers[part] & 0x7fffffff);
    if (kStep == 1) largest = larger_floats(magnitudes, largest);
    codes[part] = codes_of<Small>(magnitudes);
  }
  store_codes<2>(to_unsigned(to_words(codes[0], codes[1]), to_words(codes[2], codes[3])),
                 to_signed(to_words(numbers[0], numbers[1]), to_words(numbers[2], numbers[3])), to);
}

// cast_lanes() of bfloat16 with one scale: a register of pairs need not be widened.
template <typename Small>
inline void cast_pair_lanes(const uint16_t* from, float scale, uint8_t* to) {
  CastInts pairs[2], codes[2];
#pragma GCC unroll 2
  for (int part = 0; part < 2; part++) {
    __builtin_memcpy(&pairs[part], from + part * kCastBytes / 2, sizeof(pairs[part]));
    const CastInts magnitudes = pairs[part] & 0x7fff7fff;
    const CastInts even = codes_of<Small>((CastFloats)(magnitudes << 16) * scale);
    const CastInts odd = codes_of<Small>((CastFloats)(magnitudes & static_cast<int32_t>(0xffff0000)) * scale);
    codes[part] = even | odd << 16;
  }
  store_codes<1>(to_unsigned((CastWords)codes[0], (CastWords)codes[1]),
                 to_signed((CastWords)pairs[0], (CastWords)pairs[1]), to);
}

}  // namespace
}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE
#endif
