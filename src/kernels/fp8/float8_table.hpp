// SPDX-License-Identifier: Apache-2.0
// Casts from 8 bits to 16 by a table in vector registers, on processors that look up bytes in one. For kernels that are
// compiled once for each instruction set, see stored_number.hpp.
#pragma once

#include "kernels/fp8/float8.hpp"

#if defined(__AVX512BW__)
#define ACCEL_TABLE_BYTES 64
#elif defined(__AVX2__)
#define ACCEL_TABLE_BYTES 32
#endif

#ifdef ACCEL_TABLE_BYTES
namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {
namespace {

constexpr int64_t kTableBytes = ACCEL_TABLE_BYTES;
typedef uint8_t TableBytes __attribute__((vector_size(kTableBytes)));
typedef uint16_t TableWords __attribute__((vector_size(kTableBytes)));
typedef uint64_t TableQuads __attribute__((vector_size(kTableBytes)));

// Byte i of the result is byte index[i] of the 16 bytes that the table repeats.
inline void look_up(const TableBytes& table, const TableBytes& index, TableBytes& found) {
  typedef char Chars __attribute__((vector_size(kTableBytes)));
#if !defined(__AVX512BW__)
  found = (TableBytes)__builtin_ia32_pshufb256((Chars)table, (Chars)index);
#elif defined(__clang__)
  found = (TableBytes)__builtin_ia32_pshufb512((Chars)table, (Chars)index);
#else
  found = (TableBytes)__builtin_ia32_pshufb512_mask((Chars)table, (Chars)index, Chars{}, ~uint64_t{0});
#endif
}

// Words of the low or the high 8 bytes of each 16 of two vectors.
template <bool kHigh>
inline void interleave(const TableBytes& low, const TableBytes& high, TableWords& words) {
  TableBytes index{}, bytes;
  for (int i = 0; i < kTableBytes; i++)
    index[i] = static_cast<uint8_t>(i / 16 * 16 + i % 16 / 2 + (kHigh ? 8 : 0) + (i % 2) * kTableBytes);
#ifdef __clang__
  for (int i = 0; i < kTableBytes; i++) bytes[i] = i % 2 == 0 ? low[index[i]] : high[index[i] - kTableBytes];
#else
  bytes = __builtin_shuffle(low, high, index);
#endif
  words = (TableWords)bytes;
}

// Orders the bytes so that interleave() of the low and then of the high ones gives them as they were.
inline void spread_quads(TableBytes& bytes) {
  constexpr int kQuads = kTableBytes / 8;
  const auto quads = (TableQuads)bytes;
  TableQuads index{};
  for (int i = 0; i < kQuads; i++) index[i] = static_cast<uint64_t>(i % 2 * (kQuads / 2) + i / 2);
#ifdef __clang__
  TableQuads spread;
  for (int i = 0; i < kQuads; i++) spread[i] = quads[index[i]];
  bytes = (TableBytes)spread;
#else
  bytes = (TableBytes)__builtin_shuffle(quads, index);
#endif
}

// The numbers of codes with a scale, in bfloat16 or float16. Codes that differ in the exponent give numbers that do: so
// there is an entry for each mantissa, of subnormal and of normal codes, to which the exponent is added.
template <typename Number, typename Small, int kMantissaBitsOfNumber>
class Float8Table {
 public:
  explicit Float8Table(float scale) {
    uint8_t low[16]{}, high[16]{};
    uint16_t entries[2 * kNormal];
    for (int code = 0; code < 2 * kNormal; code++) {
      const uint16_t exponent = code < kNormal ? 0 : exponent_of(static_cast<uint8_t>(code));
      entries[code] = static_cast<uint16_t>(number(code, scale) - exponent);
      low[code] = static_cast<uint8_t>(entries[code]);
      high[code] = static_cast<uint8_t>(entries[code] >> 8);
    }
    for (int i = 0; i < kTableBytes; i++) {
      low_[i] = low[i % 16];
      high_[i] = high[i % 16];
    }
    constexpr int kLast = Small::kFirstSpecialCode - 1;
    const int of_last = entries[kNormal + kLast % kNormal] + exponent_of(kLast);
    is_exact_ = number(kNormal, scale) >> kMantissaBitsOfNumber >= 2 && of_last == number(kLast, scale);
  }

  // Whether no normal code gives an infinity or a subnormal number.
  bool is_exact() const { return is_exact_; }

  // kTableBytes codes that are no infinities and no NaN.
  void cast(const uint8_t* from, void* to) const {
    TableBytes codes;
    __builtin_memcpy(&codes, from, sizeof(codes));
    spread_quads(codes);
    constexpr uint8_t kFirstNormal = kNormal, kMantissa = kNormal - 1, kExponent = 0x80 - kNormal;
    const TableBytes magnitudes = codes & uint8_t{0x7f}, normal = TableBytes{} + kFirstNormal;
    const TableBytes index = (magnitudes < normal ? magnitudes : normal) | (magnitudes & kMantissa);
    const TableBytes exponents = magnitudes & kExponent;
    TableBytes low, high;
    look_up(low_, index, low);
    look_up(high_, index, high);
    high |= codes & uint8_t{0x80};
    TableWords numbers[2], added[2];
    interleave<false>(low, high, numbers[0]);
    interleave<true>(low, high, numbers[1]);
    interleave<false>(exponents, TableBytes{}, added[0]);
    interleave<true>(exponents, TableBytes{}, added[1]);
    for (int half = 0; half < 2; half++) numbers[half] += added[half] << kShift;
    __builtin_memcpy(to, numbers, sizeof(numbers));
  }

 private:
  static constexpr int kNormal = 1 << Small::kMantissa;  // the first normal code
  static constexpr int kShift = kMantissaBitsOfNumber - Small::kMantissa;

  static uint16_t number(int code, float scale) {
    return Number::store(Small::load(static_cast<uint8_t>(code)) * scale);
  }
  static uint16_t exponent_of(uint8_t code) { return static_cast<uint16_t>((code & (0x80 - kNormal)) << kShift); }

  TableBytes low_{}, high_{};
  bool is_exact_ = false;
};

}  // namespace
}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE
#endif
