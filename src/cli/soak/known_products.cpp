// SPDX-License-Identifier: Apache-2.0
#include "cli/soak/known_products.hpp"

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include <algorithm>

#include "base/error.hpp"

namespace accel::program {
namespace {

constexpr size_t kSize = KnownProducts::kSize, kElements = KnownProducts::kElements;
// The checksum of the results of all pairs, by the function below. A change of the matrices changes it.
constexpr uint64_t kChecksum = 0xB04700EEDDE9F99D;

// Adds 32 bits, as FNV adds 8.
uint64_t add_to_checksum(uint64_t sum, int32_t value) {
  return (sum ^ static_cast<uint32_t>(value)) * uint64_t{1099511628211};
}

// The constants of Knuth's MMIX.
class Numbers {
 public:
  // In [-31, 31], so that the sum of 64 products is exact in float32.
  int32_t next() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<int32_t>((state_ >> 40) % 63) - 31;
  }

 private:
  uint64_t state_ = 20;
};

template <typename Real>
std::array<Real, kElements> converted(const int32_t* matrix) {
  std::array<Real, kElements> values{};
  std::copy(matrix, matrix + kElements, values.begin());
  return values;
}

template <typename Real>
void multiply_scalars(const int32_t* left, const int32_t* right, int32_t* result) {
  const auto a = converted<Real>(left), b = converted<Real>(right);
  for (size_t i = 0; i < kSize; i++) {
    std::array<Real, kSize> row{};
    for (size_t k = 0; k < kSize; k++)
      for (size_t j = 0; j < kSize; j++) row[j] += a[i * kSize + k] * b[k * kSize + j];
    std::copy(row.begin(), row.end(), result + i * kSize);
  }
}

#ifdef __x86_64__

// A row of the result is in registers, so that the multipliers and not the memory are busy.
#define ACCEL_MULTIPLY(function, features, Real, Vector, width, zero, load, broadcast, add_product, store)      \
  __attribute__((target(features))) void function(const int32_t* left, const int32_t* right, int32_t* result) { \
    const auto a = converted<Real>(left), b = converted<Real>(right);                                           \
    constexpr size_t kVectors = 4;                                                                              \
    for (size_t i = 0; i < kSize; i++)                                                                          \
      for (size_t j = 0; j < kSize; j += kVectors * (width)) {                                                  \
        Vector sums[kVectors] = {zero(), zero(), zero(), zero()};                                               \
        for (size_t k = 0; k < kSize; k++) {                                                                    \
          const Vector factor = broadcast(a[i * kSize + k]);                                                    \
          for (size_t v = 0; v < kVectors; v++)                                                                 \
            sums[v] = add_product(factor, load(&b[k * kSize + j + v * (width)]), sums[v]);                      \
        }                                                                                                       \
        Real row[kVectors * (width)];                                                                           \
        for (size_t v = 0; v < kVectors; v++) store(&row[v * (width)], sums[v]);                                \
        std::copy(row, row + kVectors * (width), result + i * kSize + j);                                       \
      }                                                                                                         \
  }

ACCEL_MULTIPLY(multiply_avx2_float32, "avx2,fma", float, __m256, 8, _mm256_setzero_ps, _mm256_loadu_ps, _mm256_set1_ps,
               _mm256_fmadd_ps, _mm256_storeu_ps)
ACCEL_MULTIPLY(multiply_avx2_float64, "avx2,fma", double, __m256d, 4, _mm256_setzero_pd, _mm256_loadu_pd,
               _mm256_set1_pd, _mm256_fmadd_pd, _mm256_storeu_pd)
ACCEL_MULTIPLY(multiply_avx512_float32, "avx512f", float, __m512, 16, _mm512_setzero_ps, _mm512_loadu_ps,
               _mm512_set1_ps, _mm512_fmadd_ps, _mm512_storeu_ps)
ACCEL_MULTIPLY(multiply_avx512_float64, "avx512f", double, __m512d, 8, _mm512_setzero_pd, _mm512_loadu_pd,
               _mm512_set1_pd, _mm512_fmadd_pd, _mm512_storeu_pd)

#undef ACCEL_MULTIPLY

#endif

}  // namespace

KnownProducts::KnownProducts()
    : units_{{"integers", multiply_scalars<int32_t>},
             {"float32", multiply_scalars<float>},
             {"float64", multiply_scalars<double>}},
      lefts_(kPairs),
      rights_(kPairs),
      results_(kPairs) {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    units_.push_back({"float32 of AVX2", multiply_avx2_float32});
    units_.push_back({"float64 of AVX2", multiply_avx2_float64});
  }
  if (__builtin_cpu_supports("avx512f")) {
    units_.push_back({"float32 of AVX-512", multiply_avx512_float32});
    units_.push_back({"float64 of AVX-512", multiply_avx512_float64});
  }
#endif
  Numbers numbers;
  for (size_t pair = 0; pair < kPairs; pair++) {
    for (Matrix* const matrix : {&lefts_[pair], &rights_[pair]})
      std::generate(matrix->begin(), matrix->end(), [&] { return numbers.next(); });
    multiply_scalars<int32_t>(lefts_[pair].data(), rights_[pair].data(), results_[pair].data());
  }
}

bool KnownProducts::are_results_right() const {
  uint64_t sum = 14695981039346656037U;
  for (const Matrix& result : results_)
    for (const int32_t value : result) sum = add_to_checksum(sum, value);
  return sum == kChecksum;
}

std::optional<std::string> KnownProducts::check(uint64_t round) const {
  Matrix result;
  for (size_t i = 0; i < units_.size(); i++) {
    const size_t pair = (round + i) % kPairs;
    result.fill(-1);
    units_[i].multiply(lefts_[pair].data(), rights_[pair].data(), result.data());
    const auto [wrong, expected] = std::mismatch(result.begin(), result.end(), results_[pair].begin());
    if (wrong == result.end()) continue;
    const auto element = static_cast<size_t>(wrong - result.begin());
    return text("a product of ", units_[i].name, ": element ", element / kSize, ", ", element % kSize, " is ", *wrong,
                "; expected ", *expected);
  }
  return std::nullopt;
}

}  // namespace accel::program
