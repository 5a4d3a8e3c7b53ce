// Compiled several times with different instruction sets (see meson.build and stored_number.hpp).
#include "kernels/attention_rows.hpp"

#include "kernels/exponential.hpp"
#include "kernels/stored_number.hpp"

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {
namespace {

using Lanes = Real<float>::Lanes;

inline int64_t visible_keys(const AttentionRows& rows, int64_t row) {
  const int64_t position = row % rows.queries + 1;
  return rows.is_causal && position < rows.keys ? position : rows.keys;
}

template <typename Number>
inline void store_row(const ElementSpan& to, int64_t row, int64_t keys, int64_t visible, const float* values) {
  auto* const stored = static_cast<typename Number::Stored*>(to.data) + row * keys;
  ACCEL_VECTORISE
  for (int64_t i = 0; i < visible; i++) stored[i] = Number::store(values[i]);
  for (int64_t i = visible; i < keys; i++) stored[i] = 0;
}

inline void store_row(const ElementSpan& to, int64_t row, int64_t keys, int64_t visible, const float* values) {
  if (to.format == Format::kBFloat16) return store_row<BFloat16>(to, row, keys, visible, values);
  store_row<Plain<float>>(to, row, keys, visible, values);
}

void normalize(const AttentionRows& rows, int64_t first, int64_t last, float* logsumexp) {
  alignas(64) float values[kMaxKeys];
  for (int64_t row = first; row < last; row++) {
    const float* const scores = rows.scores + row * rows.keys;
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
    const float factor = 1 / sum;
    ACCEL_VECTORISE
    for (int64_t i = 0; i < visible; i++) values[i] *= factor;
    store_row(rows.probabilities, row, rows.keys, visible, values);
  }
}

void differentiate(const AttentionRows& rows, int64_t first, int64_t last, const float* logsumexp,
                   const float* gradients, const float* inner) {
  alignas(64) float probabilities[kMaxKeys], score_gradients[kMaxKeys];
  for (int64_t row = first; row < last; row++) {
    const float* const scores = rows.scores + row * rows.keys;
    const float* const own_gradients = gradients + row * rows.keys;
    const int64_t visible = visible_keys(rows, row);
    const float own_logsumexp = logsumexp[row], own_inner = inner[row];
    ACCEL_VECTORISE
    for (int64_t i = 0; i < visible; i++) {
      const float probability = exponential_of(scores[i] * rows.scale - own_logsumexp);
      probabilities[i] = probability;
      score_gradients[i] = probability * (own_gradients[i] - own_inner) * rows.scale;
    }
    store_row(rows.probabilities, row, rows.keys, visible, probabilities);
    store_row(rows.score_gradients, row, rows.keys, visible, score_gradients);
  }
}

}  // namespace

AttentionKernels attention_kernels() { return {normalize, differentiate}; }

}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE
