// Compiled several times with different instruction sets (see meson.build and stored_number.hpp).
#include "kernels/softmax_rows.hpp"

#include "kernels/stored_number.hpp"

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {
namespace {

constexpr int64_t kLanes = 16;  // sums are made in them, in the same order on every processor

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

// Of one number or of lanes, for x <= 0; NaN stays. By reference: not every instruction set passes lanes by value.
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
inline T larger(T a, T b) {  // NaN wins
  return a < b || b != b ? b : a;
}

// Numbers are worked on in whole lanes.
inline int64_t whole_lanes(int64_t count) { return (count + kLanes - 1) / kLanes * kLanes; }

template <typename T>
inline T largest_of(const T* values, int64_t count) {
  using Lanes = typename Real<T>::Lanes;
  Lanes top, next;
  __builtin_memcpy(&top, values, sizeof(top));
  for (int64_t i = kLanes; i < count; i += kLanes) {
    __builtin_memcpy(&next, values + i, sizeof(next));
    top = (top < next) | (next != next) ? next : top;
  }
  T result = top[0];
  for (int64_t lane = 1; lane < kLanes; lane++) result = larger(result, top[lane]);
  return result;
}

// `change` gets the lanes before they are added.
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

// The numbers of a block: where they are, or decoded into `room`, with `filling` behind the last.
template <typename Number, typename T>
inline const T* open(const typename Number::Stored* stored, int64_t count, T filling, T* room) {
  if constexpr (sizeof(T) == sizeof(*stored)) {
    if (count == kBlock) return stored;
  }
  ACCEL_VECTORISE
  for (int64_t i = 0; i < count; i++) room[i] = Number::load(stored[i]);
  for (int64_t i = count; i < whole_lanes(count); i++) room[i] = filling;
  return room;
}

template <typename Number>
void measure(const ScoreRows& rows, int64_t first, int64_t last, RowSums* sums) {
  using T = typename Number::Value;
  using Lanes = typename Real<T>::Lanes;
  constexpr double kLowest = -__builtin_inf();
  alignas(64) T room[kBlock], weight_room[kBlock];
  for (int64_t row = first; row < last; row++) {
    const auto* const scores = static_cast<const typename Number::Stored*>(rows.scores) + row * rows.classes;
    double largest = kLowest, sum = 0, weighted = 0;
    for (int64_t begin = 0; begin < rows.classes; begin += kBlock) {
      const int64_t rest = rows.classes - begin;
      const int64_t count = rest < kBlock ? rest : kBlock;
      const T* const values = open<Number>(scores + begin, count, static_cast<T>(kLowest), room);
      const auto here = static_cast<double>(largest_of(values, count));
      if (!(here <= largest)) {
        sum *= largest == kLowest ? 0 : exponential_of(largest - here);
        largest = here;
      }
      if (largest == kLowest) continue;  // nothing to sum yet
      const auto own_largest = static_cast<T>(largest);
      sum += sum_of(values, count, [own_largest](int64_t, Lanes& lanes) {
        lanes -= own_largest;
        exponential<T, typename Real<T>::LanesBits>(lanes);
      });
    }
    for (int64_t begin = 0; rows.sums_scores && begin < rows.classes; begin += kBlock) {
      const int64_t rest = rows.classes - begin;
      const int64_t count = rest < kBlock ? rest : kBlock;
      const T* const values = open<Number>(scores + begin, count, T{0}, room);
      if (rows.class_weight == nullptr) {
        weighted += sum_of(values, count, [](int64_t, Lanes&) {});
        continue;
      }
      const T* const weights =
          open<Plain<T>>(static_cast<const T*>(rows.class_weight) + begin, count, T{0}, weight_room);
      weighted += sum_of(values, count, [weights](int64_t i, Lanes& lanes) {
        Lanes factors;
        __builtin_memcpy(&factors, weights + i, sizeof(factors));
        lanes *= factors;
      });
    }
    sums[row] = {largest, sum, weighted, static_cast<double>(Number::load(scores[rows.targets[row]]))};
  }
}

template <typename Number>
void differentiate(const ScoreRows& rows, int64_t first, int64_t last, const RowSums* sums, const RowFactors* factors) {
  using T = typename Number::Value;
  const auto* const class_weight = static_cast<const T*>(rows.class_weight);
  for (int64_t row = first; row < last; row++) {
    auto* const scores = static_cast<typename Number::Stored*>(rows.scores) + row * rows.classes;
    const auto largest = static_cast<T>(sums[row].largest);
    const auto factor = static_cast<T>(factors[row].probability / sums[row].sum);
    const auto smoothing = static_cast<T>(factors[row].smoothing);
    const int64_t target = rows.targets[row];
    const T at_target = exponential_of(Number::load(scores[target]) - largest) * factor;
    if (class_weight == nullptr) {
      ACCEL_VECTORISE
      for (int64_t i = 0; i < rows.classes; i++)
        scores[i] = Number::store(exponential_of(Number::load(scores[i]) - largest) * factor - smoothing);
    } else {
      ACCEL_VECTORISE
      for (int64_t i = 0; i < rows.classes; i++)
        scores[i] =
            Number::store(exponential_of(Number::load(scores[i]) - largest) * factor - smoothing * class_weight[i]);
    }
    const T weight = class_weight == nullptr ? 1 : class_weight[target];
    scores[target] = Number::store(at_target - smoothing * weight - static_cast<T>(factors[row].target));
  }
}

void measure_format(const ScoreRows& rows, int64_t first, int64_t last, RowSums* sums) {
  switch (rows.format) {
    case Format::kDouble:
      return measure<Plain<double>>(rows, first, last, sums);
    case Format::kBFloat16:
      return measure<BFloat16>(rows, first, last, sums);
    case Format::kHalf:
      return measure<Half>(rows, first, last, sums);
    default:
      return measure<Plain<float>>(rows, first, last, sums);
  }
}

void differentiate_format(const ScoreRows& rows, int64_t first, int64_t last, const RowSums* sums,
                          const RowFactors* factors) {
  switch (rows.format) {
    case Format::kDouble:
      return differentiate<Plain<double>>(rows, first, last, sums, factors);
    case Format::kBFloat16:
      return differentiate<BFloat16>(rows, first, last, sums, factors);
    case Format::kHalf:
      return differentiate<Half>(rows, first, last, sums, factors);
    default:
      return differentiate<Plain<float>>(rows, first, last, sums, factors);
  }
}

}  // namespace

SoftmaxKernels softmax_kernels() { return {measure_format, differentiate_format}; }

}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE
