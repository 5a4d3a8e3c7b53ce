// SPDX-License-Identifier: Apache-2.0
// Compiled several times with different instruction sets (see meson.build and stored_number.hpp).
#include "kernels/attention/softmax_rows.hpp"

#include "kernels/attention/exponential.hpp"
#include "kernels/format_dispatch.hpp"

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {
namespace {

// The numbers of a block: in place, or decoded into `buffer` and padded with `filling`.
template <typename Number, typename T>
inline const T* load_block(const typename Number::Stored* stored, int64_t count, T filling, T* buffer) {
  if constexpr (sizeof(T) == sizeof(*stored)) {
    if (count == kBlock) return stored;
  }
  ACCEL_VECTORISE
  for (int64_t i = 0; i < count; i++) buffer[i] = Number::load(stored[i]);
  for (int64_t i = count; i < whole_lanes(count); i++) buffer[i] = filling;
  return buffer;
}

template <typename Number>
void measure(const ScoreRows& rows, int64_t first, int64_t last, RowSums* sums) {
  using T = typename Number::Value;
  using Lanes = typename Real<T>::Lanes;
  constexpr double kLowest = -__builtin_inf();
  alignas(64) T buffer[kBlock], weight_buffer[kBlock];
  for (int64_t row = first; row < last; row++) {
    const auto* const scores = static_cast<const typename Number::Stored*>(rows.scores) + row * rows.classes;
    double largest = kLowest, sum = 0, weighted = 0;
    for (int64_t begin = 0; begin < rows.classes; begin += kBlock) {
      const int64_t rest = rows.classes - begin;
      const int64_t count = rest < kBlock ? rest : kBlock;
      const T* const values = load_block<Number>(scores + begin, count, static_cast<T>(kLowest), buffer);
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
      const T* const values = load_block<Number>(scores + begin, count, T{0}, buffer);
      if (rows.class_weight == nullptr) {
        weighted += sum_of(values, count, [](int64_t, Lanes&) {});
        continue;
      }
      const T* const weights =
          load_block<Plain<T>>(static_cast<const T*>(rows.class_weight) + begin, count, T{0}, weight_buffer);
      weighted += sum_of(values, count, [weights](int64_t i, Lanes& lanes) {
        Lanes factors;
        __builtin_memcpy(&factors, weights + i, sizeof(factors));
        lanes *= factors;
      });
    }
    const int64_t target = rows.targets[row];
    sums[row] = {largest, sum, weighted, target < 0 ? 0 : static_cast<double>(Number::load(scores[target]))};
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
    const T at_target = target < 0 ? 0 : exponential_of(Number::load(scores[target]) - largest) * factor;
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
    if (target < 0) continue;
    const T weight = class_weight == nullptr ? 1 : class_weight[target];
    scores[target] = Number::store(at_target - smoothing * weight - static_cast<T>(factors[row].target));
  }
}

void measure_format(const ScoreRows& rows, int64_t first, int64_t last, RowSums* sums) {
  if (rows.format == Format::kDouble) return measure<Plain<double>>(rows, first, last, sums);
  with_number(rows.format, [&](auto number) { measure<decltype(number)>(rows, first, last, sums); });
}

void differentiate_format(const ScoreRows& rows, int64_t first, int64_t last, const RowSums* sums,
                          const RowFactors* factors) {
  if (rows.format == Format::kDouble) return differentiate<Plain<double>>(rows, first, last, sums, factors);
  with_number(rows.format, [&](auto number) { differentiate<decltype(number)>(rows, first, last, sums, factors); });
}

}  // namespace

SoftmaxKernels softmax_kernels() { return {measure_format, differentiate_format}; }

}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE
