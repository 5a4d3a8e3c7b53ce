// SPDX-License-Identifier: Apache-2.0
// Words of 16 bits in vector registers: products of pairs, and the codes of quantized weights as words. For kernels
// that are compiled once for each instruction set, see stored_number.hpp.
#pragma once

#include "kernels/fp8/float8_table.hpp"
#include "kernels/quantized/code_books.hpp"

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {
namespace {

#if defined(__AVX512BW__)
constexpr int64_t kWordBytes = 64;
#elif defined(__AVX2__)
constexpr int64_t kWordBytes = 32;
#else
constexpr int64_t kWordBytes = 16;
#endif
constexpr int64_t kWords = kWordBytes / 2, kSums = kWordBytes / 4;
typedef int16_t Words __attribute__((vector_size(kWordBytes)));
typedef uint16_t UnsignedWords __attribute__((vector_size(kWordBytes)));
typedef int32_t WordSums __attribute__((vector_size(kWordBytes)));
typedef float FloatSums __attribute__((vector_size(kWordBytes)));

template <typename Lanes>
inline void load_lanes_of(const void* from, Lanes& lanes) {
  __builtin_memcpy(&lanes, from, sizeof lanes);
}

// Adds the products of neighbours: sums[i] += first[2 i] * second[2 i] + first[2 i + 1] * second[2 i + 1].
inline void add_pairs(const Words& first, const Words& second, WordSums& sums) {
#if defined(__AVX512BW__) && defined(__clang__)
  sums += (WordSums)__builtin_ia32_pmaddwd512(first, second);
#elif defined(__AVX512BW__)
  sums += (WordSums)__builtin_ia32_pmaddwd512_mask(first, second, WordSums{}, static_cast<uint16_t>(0xffff));
#elif defined(__AVX2__)
  sums += (WordSums)__builtin_ia32_pmaddwd256(first, second);
#elif defined(__SSE2__)
  sums += (WordSums)__builtin_ia32_pmaddwd128(first, second);
#else
  for (int64_t i = 0; i < kSums; i++)
    sums[i] += int32_t{first[2 * i]} * second[2 * i] + int32_t{first[2 * i + 1]} * second[2 * i + 1];
#endif
}

// Sources of words: a step reads kStepBytes of codes and gives kParts vectors. column() is the column, of those of a
// step, whose code is in a place of a vector. Cheap sources are read again for a few inputs at a time. Columns of 16
// bytes stay in the same 16 bytes of the vectors.

// Codes of 8 bits with a sign.
struct ByteSource {
  static constexpr bool kIsCheap = true;
  static constexpr int64_t kParts = 2, kStepBytes = kWordBytes, kStepColumns = kWordBytes;
  static constexpr int64_t kMostSteps = 8;
  static int64_t column(int64_t part, int64_t word) { return 2 * word + part; }
  void read(const uint8_t* codes, Words (&parts)[kParts]) const {
    Words pairs;
    load_lanes_of(codes, pairs);
    parts[0] = (Words)((UnsignedWords)pairs << 8) >> 8;
    parts[1] = pairs >> 8;
  }
};

// Codes 0..15.
struct NibbleSource {
  static constexpr bool kIsCheap = true;
  static constexpr int64_t kParts = 4, kStepBytes = kWordBytes, kStepColumns = 2 * kWordBytes;
  static constexpr int64_t kMostSteps = 4;
  static int64_t column(int64_t part, int64_t word) { return 4 * word + (part ^ 1); }
  void read(const uint8_t* codes, Words (&parts)[kParts]) const {
    UnsignedWords quads;
    load_lanes_of(codes, quads);
    parts[0] = (Words)(quads & uint16_t{15});
    parts[1] = (Words)((quads >> 4) & uint16_t{15});
    parts[2] = (Words)((quads >> 8) & uint16_t{15});
    parts[3] = (Words)(quads >> 12);
  }
};

#ifdef ACCEL_TABLE_BYTES
// Codes that are places of a table of 16 words, of at most 12 bits.
struct TableSource {
  static constexpr bool kIsCheap = false;
  static constexpr int64_t kParts = 4, kStepBytes = kWordBytes, kStepColumns = 2 * kWordBytes;
  static constexpr int64_t kMostSteps = 2;
  static int64_t column(int64_t part, int64_t word) {
    const int64_t byte = word / 8 * 16 + word % 8 + (part % 2) * 8;
    return 2 * byte + part / 2;
  }

  explicit TableSource(const int16_t (&table)[16]) {
    for (int i = 0; i < kTableBytes; i++) {
      low[i] = static_cast<uint8_t>(table[i % 16]);
      high[i] = static_cast<uint8_t>(static_cast<uint16_t>(table[i % 16]) >> 8);
    }
  }

  void read(const uint8_t* codes, Words (&parts)[kParts]) const {
    TableBytes bytes;
    load_lanes_of(codes, bytes);
    read_half((TableBytes)((TableWords)bytes >> 4) & uint8_t{15}, parts[0], parts[1]);
    read_half(bytes & uint8_t{15}, parts[2], parts[3]);
  }

 private:
  void read_half(const TableBytes& places, Words& first, Words& second) const {
    TableBytes found_low, found_high;
    look_up(low, places, found_low);
    look_up(high, places, found_high);
    TableWords words;
    interleave<false>(found_low, found_high, words);
    first = (Words)words;
    interleave<true>(found_low, found_high, words);
    second = (Words)words;
  }

  TableBytes low, high;
};
// Fractions of 15 bits: first * second / 2^15, rounded.
inline void multiply_fractions(const Words& first, const Words& second, Words& product) {
#if defined(__AVX512BW__) && defined(__clang__)
  product = (Words)__builtin_ia32_pmulhrsw512(first, second);
#elif defined(__AVX512BW__)
  product = (Words)__builtin_ia32_pmulhrsw512_mask(first, second, Words{}, ~uint32_t{0});
#else
  product = (Words)__builtin_ia32_pmulhrsw256(first, second);
#endif
}

// 8-bit floats without infinities and NaN, as fractions of the largest number, which is word 1792: a mantissa with its
// leading bit times a power of two that a table has for the 16 highest exponents. Smaller numbers are below half a
// word.
template <typename Small>
struct FloatSource {
  static constexpr bool kIsCheap = false;
  static constexpr int64_t kParts = 2, kStepBytes = kWordBytes, kStepColumns = kWordBytes;
  static constexpr int64_t kMostSteps = 4;
  static constexpr int kMantissa = Small::kMantissa;
  static int64_t column(int64_t part, int64_t word) { return word / 8 * 16 + word % 8 + part * 8; }

  FloatSource() {
    for (int i = 0; i < kTableBytes; i++) {
      const int power = i % 16 < 4 ? 0 : 1 << (i % 16 - 4);
      low[i] = static_cast<uint8_t>(power);
      high[i] = static_cast<uint8_t>(power >> 8);
    }
  }

  void read(const uint8_t* codes, Words (&parts)[kParts]) const {
    constexpr uint8_t kLeading = 1 << kMantissa, kUsedExponents = kMantissa == 2 ? 15 : 0;
    TableBytes bytes, low_powers, high_powers;
    load_lanes_of(codes, bytes);
    const TableBytes magnitudes = bytes & uint8_t{0x7f};
    TableBytes exponents = (TableBytes)((TableWords)magnitudes >> kMantissa) & uint8_t{0x7f >> kMantissa};
    if (kUsedExponents > 0) {
      const TableBytes least = TableBytes{} + kUsedExponents;
      exponents = (exponents > least ? exponents : least) - kUsedExponents;
    }
    look_up(low, exponents, low_powers);
    look_up(high, exponents, high_powers);
    // The leading bit is the second highest of a byte.
    const TableBytes mantissas = (magnitudes & static_cast<uint8_t>(kLeading - 1)) | kLeading;
    const TableBytes shifted = (TableBytes)((TableWords)mantissas << (6 - kMantissa));
    read_half<false>(bytes, shifted, low_powers, high_powers, parts[0]);
    read_half<true>(bytes, shifted, low_powers, high_powers, parts[1]);
  }

 private:
  template <bool kHigh>
  void read_half(const TableBytes& codes, const TableBytes& mantissas, const TableBytes& low_powers,
                 const TableBytes& high_powers, Words& words) const {
    TableWords signs, fractions, powers;
    interleave<kHigh>(TableBytes{}, codes, signs);
    interleave<kHigh>(TableBytes{}, mantissas, fractions);
    interleave<kHigh>(low_powers, high_powers, powers);
    Words product;
    multiply_fractions((Words)fractions, (Words)powers, product);
    const Words negative = (Words)signs >> 15;
    words = (product ^ negative) - negative;
  }

  TableBytes low, high;
};
#endif

// Words that another source has read before.
template <typename Read>
struct WordSource {
  static constexpr int64_t kParts = 1, kStepBytes = kWordBytes, kStepColumns = Read::kStepColumns / Read::kParts;
  static constexpr int64_t kMostSteps = Read::kMostSteps * Read::kParts;
  void read(const uint8_t* words, Words (&parts)[kParts]) const { load_lanes_of(words, parts[0]); }
};

}  // namespace
}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE
