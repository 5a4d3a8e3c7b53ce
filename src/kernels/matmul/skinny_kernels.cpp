// SPDX-License-Identifier: Apache-2.0
// Compiled several times with different instruction sets (see meson.build and stored_number.hpp).
#include "kernels/matmul/skinny_kernels.hpp"

#include "kernels/format_dispatch.hpp"

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {
namespace {

// All sums of a tile are in registers, beside the weights that are multiplied and one vector of values. Products of one
// row read one column after the other: memory gives a single stream faster than several (Zen 4: 36 GB/s, not 28).
#if defined(__AVX512F__)
constexpr int64_t kVectorLanes = 16, kTileRows = 8, kTileColumns = 2;
#elif defined(__AVX__)
constexpr int64_t kVectorLanes = 8, kTileRows = 4, kTileColumns = 3;
#else
constexpr int64_t kVectorLanes = 4, kTileRows = 4, kTileColumns = 2;
#endif
typedef float Vector __attribute__((vector_size(kVectorLanes * sizeof(float))));

// Two vectors of numbers that lie together. By reference: not every instruction set passes lanes by value.
template <int64_t kHalf>
inline void load_half(Plain<float>, const float* from, Vector& vector) {
  __builtin_memcpy(&vector, from + kHalf * kVectorLanes, sizeof vector);
}

// A half has the even places, the other one the odd ones: one operation for each vector.
template <int64_t kHalf>
inline void load_half(BFloat16, const uint16_t* from, Vector& vector) {
  typedef uint32_t Pairs __attribute__((vector_size(kVectorLanes * sizeof(uint32_t))));
  Pairs pairs;
  __builtin_memcpy(&pairs, from, sizeof pairs);
  const Pairs bits = kHalf == 0 ? pairs << 16 : pairs & 0xffff0000u;
  __builtin_memcpy(&vector, &bits, sizeof vector);
}

template <int64_t kHalf>
inline void load_half(Half, const uint16_t* from, Vector& vector) {
  alignas(64) float values[kVectorLanes];
  ACCEL_VECTORISE
  for (int64_t i = 0; i < kVectorLanes; i++) values[i] = Half::load(from[kHalf * kVectorLanes + i]);
  __builtin_memcpy(&vector, values, sizeof vector);
}

inline float sum_of(const Vector& vector) {
  float lanes[kVectorLanes];
  __builtin_memcpy(lanes, &vector, sizeof vector);
#pragma GCC unroll 4
  for (int64_t width = kVectorLanes / 2; width > 0; width /= 2)
#pragma GCC unroll 8
    for (int64_t i = 0; i < width; i++) lanes[i] += lanes[i + width];
  return lanes[0];
}

template <typename Number>
class SkinnyColumns {
  using Stored = typename Number::Stored;

 public:
  explicit SkinnyColumns(const SkinnyProduct& product)
      : product_(product),
        second_(static_cast<const Stored*>(product.second)),
        bias_(static_cast<const Stored*>(product.bias)),
        result_(static_cast<Stored*>(product.result)) {}

  void multiply(int64_t begin, int64_t end) const {
    int64_t column = begin;
    if (product_.rows == 1)
      for (; column < end; column++) tile<1, 1>(0, column);
    for (; column + kTileColumns <= end; column += kTileColumns) columns<kTileColumns>(column);
    for (; column < end; column++) columns<1>(column);
  }

 private:
  // Rows of a matrix of 4 KiB are pages of their own, where the processor's own reading ahead ends. Into the L2 cache:
  // with all of it in the few buffers that fill the L1 cache, a core of Zen 4 reads 12 GB/s instead of 26.
  static constexpr int64_t kAhead = 8192 / sizeof(Stored);
  static constexpr int kIntoL2 = 2;

  template <int64_t kColumns>
  void columns(int64_t column) const {
    int64_t row = 0;
    for (; row + kTileRows <= product_.rows; row += kTileRows) tile<kTileRows, kColumns>(row, column);
    if (row + kTileRows / 2 <= product_.rows) {
      tile<kTileRows / 2, kColumns>(row, column);
      row += kTileRows / 2;
    }
    for (; row < product_.rows; row++) tile<1, kColumns>(row, column);
  }

  template <int64_t kRows, int64_t kColumns>
  void tile(int64_t row, int64_t column) const {
    const float* const first = product_.first + row * product_.first_stride;
    const Stored* const second = second_ + column * product_.second_stride;
    Vector sums[kRows][kColumns] = {};
    int64_t k = 0;
    for (; k + 2 * kVectorLanes <= product_.inner; k += 2 * kVectorLanes) {
      if (row == 0)
        for (int64_t j = 0; j < kColumns; j++)
          __builtin_prefetch(second + j * product_.second_stride + k + kAhead, 0, kIntoL2);
      add<0>(first + k, second + k, sums);
      add<1>(first + k, second + k, sums);
    }
    for (int64_t i = 0; i < kRows; i++)
      for (int64_t j = 0; j < kColumns; j++) {
        float sum = sum_of(sums[i][j]);
        for (int64_t rest = k; rest < product_.inner; rest++)
          sum += first[i * product_.first_stride + rest] * Number::load(second[j * product_.second_stride + rest]);
        if (bias_ != nullptr) sum += Number::load(bias_[column + j]);
        result_[(row + i) * product_.result_stride + column + j] = Number::store(sum);
      }
  }

  template <int64_t kHalf, int64_t kRows, int64_t kColumns>
  void add(const float* first, const Stored* second, Vector (&sums)[kRows][kColumns]) const {
    Vector weights[kColumns];
#pragma GCC unroll 4
    for (int64_t j = 0; j < kColumns; j++) load_half<kHalf>(Number(), second + j * product_.second_stride, weights[j]);
#pragma GCC unroll 8
    for (int64_t i = 0; i < kRows; i++) {
      Vector values;
      load_half<kHalf>(Plain<float>(), first + i * product_.first_stride, values);
#pragma GCC unroll 4
      for (int64_t j = 0; j < kColumns; j++) sums[i][j] += values * weights[j];
    }
  }

  const SkinnyProduct& product_;
  const Stored* second_;
  const Stored* bias_;
  Stored* result_;
};

}  // namespace

void arrange_skinny(const void* row, int64_t inner, Format format, float* to) {
  with_number(format, [&](auto number) {
    using Number = decltype(number);
    const auto* const from = static_cast<const typename Number::Stored*>(row);
    int64_t k = 0;
    if (format == Format::kBFloat16)
      for (; k + 2 * kVectorLanes <= inner; k += 2 * kVectorLanes)
        for (int64_t i = 0; i < kVectorLanes; i++) {
          to[k + i] = Number::load(from[k + 2 * i]);
          to[k + kVectorLanes + i] = Number::load(from[k + 2 * i + 1]);
        }
    for (; k < inner; k++) to[k] = Number::load(from[k]);
  });
}

void multiply_skinny(const SkinnyProduct& product, int64_t begin, int64_t end) {
  with_number(product.format, [&](auto number) { SkinnyColumns<decltype(number)>(product).multiply(begin, end); });
}

}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE
