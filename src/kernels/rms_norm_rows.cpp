// SPDX-License-Identifier: Apache-2.0
// Compiled several times with different instruction sets (see meson.build and stored_number.hpp).
#include "kernels/rms_norm_rows.hpp"

#include "kernels/format_dispatch.hpp"

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {
namespace {

constexpr int64_t kNormSums = 16;  // partial sums, added in the same order on every processor

template <typename Number>
float mean_of_squares(const typename Number::Stored* row, int64_t size) {
  float sums[kNormSums] = {};
  int64_t i = 0;
  for (; i + kNormSums <= size; i += kNormSums) {
    ACCEL_VECTORISE
    for (int64_t lane = 0; lane < kNormSums; lane++) {
      const float value = Number::load(row[i + lane]);
      sums[lane] += value * value;
    }
  }
  for (int64_t lane = 0; i < size; i++, lane++) {
    const float value = Number::load(row[i]);
    sums[lane] += value * value;
  }
  for (int64_t width = kNormSums / 2; width > 0; width /= 2)
    for (int64_t lane = 0; lane < width; lane++) sums[lane] += sums[lane + width];
  return sums[0] / static_cast<float>(size);
}

template <typename Number, bool kRoundsFirst>
void normalize_row(const RmsNormRows& rows, int64_t row) {
  using Stored = typename Number::Stored;
  const Stored* const from = static_cast<const Stored*>(rows.input) + row * rows.size;
  const auto* const weight = static_cast<const Stored*>(rows.weight);
  Stored* const to = static_cast<Stored*>(rows.result) + row * rows.size;
  const float factor = 1 / __builtin_sqrtf(mean_of_squares<Number>(from, rows.size) + rows.epsilon);
  const float added = rows.adds_one ? 1 : 0;
  ACCEL_VECTORISE
  for (int64_t i = 0; i < rows.size; i++) {
    float value = Number::load(from[i]) * factor;
    if (kRoundsFirst) value = Number::load(Number::store(value));
    to[i] = Number::store(value * (Number::load(weight[i]) + added));
  }
}

}  // namespace

void normalize_rows(const RmsNormRows& rows, int64_t begin, int64_t end) {
  with_number(rows.format, [&](auto number) {
    using Number = decltype(number);
    for (int64_t row = begin; row < end; row++)
      rows.rounds_first ? normalize_row<Number, true>(rows, row) : normalize_row<Number, false>(rows, row);
  });
}

}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE
