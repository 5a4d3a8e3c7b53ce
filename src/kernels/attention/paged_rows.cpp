// SPDX-License-Identifier: Apache-2.0
// Compiled several times with different instruction sets (see meson.build and stored_number.hpp).
#include "kernels/attention/paged_rows.hpp"

#include "kernels/attention/exponential.hpp"
#include "kernels/update/stored_number.hpp"

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {
namespace {

using Lanes = Real<float>::Lanes;

inline void load_lanes(const float* from, Lanes& lanes) { __builtin_memcpy(&lanes, from, sizeof(lanes)); }

inline void load_lanes(const uint16_t* from, Lanes& lanes) {
  typedef uint16_t Stored __attribute__((vector_size(kLanes * sizeof(uint16_t))));
  Stored stored;
  __builtin_memcpy(&stored, from, sizeof(stored));
  const auto bits = __builtin_convertvector(stored, Real<float>::LanesBits) << 16;
  __builtin_memcpy(&lanes, &bits, sizeof(lanes));
}

inline float sum_of_lanes(const Lanes& lanes) {
  typedef float Eight __attribute__((vector_size(32)));
  typedef float Four __attribute__((vector_size(16)));
  Eight halves[2];
  __builtin_memcpy(halves, &lanes, sizeof(halves));
  const Eight half = halves[0] + halves[1];
  Four quarters[2];
  __builtin_memcpy(quarters, &half, sizeof(quarters));
  const Four sums = quarters[0] + quarters[1];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

template <typename Number>
class PagedAttention {
  using Stored = typename Number::Stored;

 public:
  explicit PagedAttention(const PagedHead& head)
      : head_(head),
        rows_(head.positions * head.heads),
        width_(whole_lanes(head.length)),
        queries_(head.scratch),
        sums_(queries_ + rows_ * head.size),
        scores_(sums_ + rows_ * head.size),
        first_(head.window > 0 ? larger(head.length - head.positions + 1 - head.window, 0) : 0) {}

  void run() const {
    load_queries();
    for (int64_t begin = first_ / head_.block_size * head_.block_size; begin < head_.length; begin += head_.block_size)
      score_block(begin);
    for (int64_t row = 0; row < rows_; row++) normalize(row);
    for (int64_t i = 0; i < rows_ * head_.size; i++) sums_[i] = 0;
    for (int64_t begin = first_ / head_.block_size * head_.block_size; begin < head_.length; begin += head_.block_size)
      add_block(begin);
    store_sums();
  }

 private:
  static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
  static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

  // Rows are the heads of the first position, then those of the second.
  int64_t end_of(int64_t row) const { return head_.length - head_.positions + row / head_.heads + 1; }
  int64_t begin_of(int64_t row) const { return head_.window > 0 ? larger(end_of(row) - head_.window, 0) : 0; }
  const Stored* block(const void* storage, int64_t begin) const {
    return static_cast<const Stored*>(storage) + head_.blocks[begin / head_.block_size] * head_.block_stride;
  }

  void load_queries() const {
    for (int64_t row = 0; row < rows_; row++) {
      const Stored* const from = static_cast<const Stored*>(head_.queries) + row / head_.heads * head_.position_stride +
                                 row % head_.heads * head_.head_stride;
      for (int64_t i = 0; i < head_.size; i++) queries_[row * head_.size + i] = Number::load(from[i]) * head_.scale;
    }
  }

  void score_block(int64_t begin) const {
    const Stored* key = block(head_.keys, begin) + larger(first_ - begin, 0) * head_.size;
    const int64_t last = smaller(begin + head_.block_size, head_.length);
    for (int64_t position = larger(begin, first_); position < last; position++, key += head_.size) {
      for (int64_t row = 0; row < rows_; row++) {
        const float* const query = queries_ + row * head_.size;
        Lanes sum = {}, x, y;
        int64_t i = 0;
        for (; i + kLanes <= head_.size; i += kLanes) {
          load_lanes(query + i, x);
          load_lanes(key + i, y);
          sum += x * y;
        }
        float score = sum_of_lanes(sum);
        for (; i < head_.size; i++) score += query[i] * Number::load(key[i]);
        scores_[row * width_ + position] = score;
      }
    }
  }

  // Scores become weights.
  void normalize(int64_t row) const {
    float* const scores = scores_ + row * width_;
    const int64_t begin = begin_of(row), end = end_of(row);
    if (head_.cap != 0)
      for (int64_t i = begin; i < end; i++) scores[i] = __builtin_tanhf(scores[i] / head_.cap) * head_.cap;
    for (int64_t i = first_ / kLanes * kLanes; i < begin; i++) scores[i] = -__builtin_inff();
    for (int64_t i = end; i < width_; i++) scores[i] = -__builtin_inff();
    const int64_t first = first_ / kLanes * kLanes;
    const float largest = largest_of(scores + first, width_ - first);
    const auto sum =
        static_cast<float>(sum_of(scores + first, width_ - first, [scores, first, largest](int64_t i, Lanes& lanes) {
          lanes -= largest;
          exponential<float, Real<float>::LanesBits>(lanes);
          __builtin_memcpy(scores + first + i, &lanes, sizeof(lanes));
        }));
    const float factor = 1 / sum;
    for (int64_t i = first; i < width_; i++) scores[i] *= factor;
  }

  void add_block(int64_t begin) const {
    const Stored* const values = block(head_.values, begin);
    const int64_t first = larger(first_ - begin, 0), last = smaller(head_.block_size, head_.length - begin);
    for (int64_t row = 0; row < rows_; row++) {
      const float* const weights = scores_ + row * width_ + begin;
      float* const sums = sums_ + row * head_.size;
      int64_t i = 0;
      for (; i + kLanes <= head_.size; i += kLanes) {
        Lanes sum, value;
        load_lanes(sums + i, sum);
        for (int64_t position = first; position < last; position++) {
          load_lanes(values + position * head_.size + i, value);
          sum += value * weights[position];
        }
        __builtin_memcpy(sums + i, &sum, sizeof(sum));
      }
      for (; i < head_.size; i++)
        for (int64_t position = first; position < last; position++)
          sums[i] += Number::load(values[position * head_.size + i]) * weights[position];
    }
  }

  void store_sums() const {
    for (int64_t row = 0; row < rows_; row++) {
      Stored* const to = static_cast<Stored*>(head_.out) + row / head_.heads * head_.out_position_stride +
                         row % head_.heads * head_.out_head_stride;
      for (int64_t i = 0; i < head_.size; i++) to[i] = Number::store(sums_[row * head_.size + i]);
    }
  }

  const PagedHead& head_;
  int64_t rows_, width_;  // the width is that of a row of scores
  float *queries_, *sums_, *scores_;
  int64_t first_;  // the first position that a query sees
};

}  // namespace

void attend_pages(const PagedHead& head) {
  if (head.format == Format::kBFloat16) return PagedAttention<BFloat16>(head).run();
  PagedAttention<Plain<float>>(head).run();
}

}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE
