// SPDX-License-Identifier: Apache-2.0
// Compiled several times with different instruction sets (see meson.build and stored_number.hpp).
#include "kernels/attention/attention_rows.hpp"

#include "kernels/attention/exponential.hpp"
#include "kernels/update/stored_number.hpp"

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {
namespace {

using Lanes = Real<float>::Lanes;

inline int64_t visible_keys(const AttentionRows& rows, int64_t row) {
  const int64_t position = rows.first_query + row % rows.queries + 1;
  return rows.is_causal && position < rows.keys ? position : rows.keys;
}

template <typename Number>
inline void store_row_as(const ElementSpan& to, const AttentionRows& rows, int64_t row, int64_t visible,
                         const float* values, float factor) {
  auto* const stored = static_cast<typename Number::Stored*>(to.data) + row * rows.stride;
  ACCEL_VECTORISE
  for (int64_t i = 0; i < visible; i++) stored[i] = Number::store(values[i] * factor);
  for (int64_t i = visible; i < rows.keys; i++) stored[i] = 0;
}

inline void store_row(const ElementSpan& to, const AttentionRows& rows, int64_t row, int64_t visible,
                      const float* values, float factor = 1) {
  if (to.format == Format::kBFloat16) return store_row_as<BFloat16>(to, rows, row, visible, values, factor);
  store_row_as<Plain<float>>(to, rows, row, visible, values, factor);
}

void normalize(const AttentionRows& rows, int64_t first, int64_t last, float* logsumexp) {
  alignas(64) float values[kMaxKeys];
  for (int64_t row = first; row < last; row++) {
    const float* const scores = rows.scores + row * rows.stride;
    const int64_t visible = visible_keys(rows, row);
    ACCEL_VECTORISE
    for (int64_t i = 0; i < visible; i++) values[i] = scores[i] * rows.scale;
    for (int64_t i = visible; i < whole_lanes(visible); i++) values[i] = -__builtin_inff();
    const float largest = largest_of(values, visible);
    const auto sum = static_cast<float>(sum_of(values, visible, [&values, largest](int64_t i, Lanes& lanes) {
      lanes -= largest;
      exponential<float, Real<float>::LanesBits>(lanes);
      __builtin_memcpy(values + i, &lanes, sizeof(lanes));
    }));
    logsumexp[row] = largest + __builtin_logf(sum);
    store_row(rows.probabilities, rows, row, visible, values, 1 / sum);
  }
}

void differentiate(const AttentionRows& rows, int64_t first, int64_t last, const float* logsumexp,
                   const float* gradients, const float* inner) {
  alignas(64) float probabilities[kMaxKeys], score_gradients[kMaxKeys];
  for (int64_t row = first; row < last; row++) {
    const float* const scores = rows.scores + row * rows.stride;
    const float* const own_gradients = gradients + row * rows.stride;
    const int64_t visible = visible_keys(rows, row);
    const float own_logsumexp = logsumexp[row], own_inner = inner[row];
    ACCEL_VECTORISE
    for (int64_t i = 0; i < visible; i++) {
      const float probability = exponential_of(scores[i] * rows.scale - own_logsumexp);
      probabilities[i] = probability;
      score_gradients[i] = probability * (own_gradients[i] - own_inner) * rows.scale;
    }
    store_row(rows.probabilities, rows, row, visible, probabilities);
    store_row(rows.score_gradients, rows, row, visible, score_gradients);
  }
}

void differentiate_columns(const AttentionColumns& columns) {
  for (int64_t key = 0; key < columns.keys; key++) {
    float* const scores = columns.scores + key * columns.stride;
    float* const gradients = columns.gradients + key * columns.stride;
    const int64_t first = !columns.is_causal ? 0 : key < columns.queries ? key : columns.queries;
    for (int64_t i = 0; i < first; i++) scores[i] = gradients[i] = 0;
    ACCEL_VECTORISE
    for (int64_t i = first; i < columns.queries; i++) {
      const float probability = exponential_of(scores[i] * columns.scale - columns.logsumexp[i]);
      scores[i] = probability;
      gradients[i] = probability * (gradients[i] - columns.inner[i]) * columns.scale;
    }
  }
}

void inner_products(const float* first, int64_t first_stride, const float* second, int64_t second_stride, int64_t rows,
                    int64_t size, float* results) {
  for (int64_t row = 0; row < rows; row++) {
    const float *const a = first + row * first_stride, *const b = second + row * second_stride;
    Lanes sums = {}, x, y;
    int64_t i = 0;
    for (; i + kLanes <= size; i += kLanes) {
      __builtin_memcpy(&x, a + i, sizeof(x));
      __builtin_memcpy(&y, b + i, sizeof(y));
      sums += x * y;
    }
    float sum = 0;
    for (int64_t lane = 0; lane < kLanes; lane++) sum += sums[lane];
    for (; i < size; i++) sum += a[i] * b[i];
    results[row] = sum;
  }
}

}  // namespace

AttentionKernels attention_kernels() { return {normalize, differentiate, differentiate_columns, inner_products}; }

}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE
