// SPDX-License-Identifier: Apache-2.0
// Vectorised exponential, sum and maximum over SIMD lanes. For kernels that are compiled once for each instruction set,
// see stored_number.hpp.
#pragma once

#include <cstdint>

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {
namespace {

constexpr int64_t kLanes = 16;  // partial sums, added in the same order on every processor

// exp(x) = 2^n * exp(r) with x = n * ln 2 + r: ln 2 in two parts, of which the products of n with the first are exact,
// and so many terms of the series that the rest is below the last bit for |r| <= ln 2 / 2.
template <typename T>
struct Real;
template <>
struct Real<float> {
  using Bits = uint32_t;
  typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float))));
  typedef uint32_t LanesBits __attribute__((vector_size(kLanes * sizeof(float))));
  static constexpr float kLeast = -87.0f;     // below it the result counts as 0
  static constexpr float kShift = 0x1.8p23f;  // added to a number, it leaves the nearest integer in the last bits
  static constexpr float kLn2High = 0x1.62ep-1f, kLn2Low = 0x1.0bfbe8p-15f;
  static constexpr int kMantissa = 23, kBias = 127, kTerms = 7;
};
template <>
struct Real<double> {
  using Bits = uint64_t;
  typedef double Lanes __attribute__((vector_size(kLanes * sizeof(double))));
  typedef uint64_t LanesBits __attribute__((vector_size(kLanes * sizeof(double))));
  static constexpr double kLeast = -708.0;
  static constexpr double kShift = 0x1.8p52;
  static constexpr double kLn2High = 0x1.62e42fefa3p-1, kLn2Low = 0x1.3de6af278ece6p-42;
  static constexpr int kMantissa = 52, kBias = 1023, kTerms = 13;
};

constexpr double kInverseFactorials[] = {
    1.0,        1.0,         1.0 / 2,      1.0 / 6,       1.0 / 24,       1.0 / 120,       1.0 / 720,
    1.0 / 5040, 1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800};

// Computes exp(x) of one number or of lanes, for x <= 0; NaN stays. By reference: not every instruction set passes
// lanes by value.
template <typename T, typename Bits, typename V>
inline void exponential(V& x) {
  using R = Real<T>;
  const V shifted = x * static_cast<T>(1.4426950408889634074) + R::kShift;
  const V n = shifted - R::kShift;
  const V r = (x - n * R::kLn2High) - n * R::kLn2Low;
  V series = r * static_cast<T>(kInverseFactorials[R::kTerms]) + static_cast<T>(kInverseFactorials[R::kTerms - 1]);
#pragma GCC unroll 16
  for (int term = R::kTerms - 2; term >= 0; term--) series = series * r + static_cast<T>(kInverseFactorials[term]);
  Bits bits;
  __builtin_memcpy(&bits, &shifted, sizeof(bits));
  bits = (bits + R::kBias) << R::kMantissa;
  V power;
  __builtin_memcpy(&power, &bits, sizeof(bits));
  series *= power;
  x = x < R::kLeast ? V{} : series;
}

template <typename T>
inline T exponential_of(T x) {
  exponential<T, typename Real<T>::Bits>(x);
  return x;
}

template <typename T>
inline T larger_number(T a, T b) {  // NaN wins
  return a < b || b != b ? b : a;   // NOLINT(misc-redundant-expression)
}

// Arrays are padded to a multiple of the lanes.
inline int64_t whole_lanes(int64_t count) { return (count + kLanes - 1) / kLanes * kLanes; }

template <typename T>
inline T largest_of(const T* values, int64_t count) {
  using Lanes = typename Real<T>::Lanes;
  Lanes top, next;
  __builtin_memcpy(&top, values, sizeof(top));
  for (int64_t i = kLanes; i < count; i += kLanes) {
    __builtin_memcpy(&next, values + i, sizeof(next));
    top = ((top < next) | (next != next)) ? next : top;  // NOLINT(misc-redundant-expression)
  }
  T result = top[0];
  for (int64_t lane = 1; lane < kLanes; lane++) result = larger_number(result, top[lane]);
  return result;
}

// `change` may modify the lanes before they are added.
template <typename T, typename Change>
inline double sum_of(const T* values, int64_t count, const Change& change) {
  using Lanes = typename Real<T>::Lanes;
  Lanes sums = {}, next;
  for (int64_t i = 0; i < count; i += kLanes) {
    __builtin_memcpy(&next, values + i, sizeof(next));
    change(i, next);
    sums += next;
  }
  double sum = 0;
  for (int64_t lane = 0; lane < kLanes; lane++) sum += static_cast<double>(sums[lane]);
  return sum;
}

}  // namespace
}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE
