// Compiled several times with different instruction sets (see meson.build).
#include "kernels/matmul/skinny_kernels.hpp"

#include <cstring>

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {
namespace {

#if defined(__AVX512F__)
constexpr int64_t kVectorLanes = 16;
#elif defined(__AVX__)
constexpr int64_t kVectorLanes = 8;
#else
constexpr int64_t kVectorLanes = 4;
#endif
using Vector = float __attribute__((vector_size(kVectorLanes * sizeof(float))));

inline Vector load(const float* from) {
  Vector vector;
  std::memcpy(&vector, from, sizeof vector);
  return vector;
}

inline float sum_of(Vector vector) {
  float lanes[kVectorLanes];
  std::memcpy(lanes, &vector, sizeof vector);
  for (int64_t width = kVectorLanes / 2; width > 0; width /= 2)
    for (int64_t i = 0; i < width; i++) lanes[i] += lanes[i + width];
  return lanes[0];
}

// Rows of a matrix of 4 KiB are pages of their own, where the processor's own reading ahead ends.
constexpr int64_t kAhead = 4096;

// All sums of a tile are in registers, and what is loaded is used several times.
template <int64_t kRows, int64_t kColumns>
void multiply_tile(const SkinnyProduct& product, int64_t row, int64_t column) {
  const float* const first = product.first + row * product.first_stride;
  const float* const second = product.second + column * product.second_stride;
  Vector sums[kRows][kColumns] = {};
  int64_t k = 0;
  for (; k + kVectorLanes <= product.inner; k += kVectorLanes) {
    Vector weights[kColumns];
    for (int64_t j = 0; j < kColumns; j++) {
      weights[j] = load(second + j * product.second_stride + k);
      __builtin_prefetch(second + j * product.second_stride + k + kAhead);
    }
    for (int64_t i = 0; i < kRows; i++) {
      const Vector values = load(first + i * product.first_stride + k);
      for (int64_t j = 0; j < kColumns; j++) sums[i][j] += values * weights[j];
    }
  }
  for (int64_t i = 0; i < kRows; i++)
    for (int64_t j = 0; j < kColumns; j++) {
      float sum = sum_of(sums[i][j]);
      for (int64_t rest = k; rest < product.inner; rest++)
        sum += first[i * product.first_stride + rest] * second[j * product.second_stride + rest];
      if (product.bias != nullptr) sum += product.bias[column + j];
      product.result[(row + i) * product.result_stride + column + j] = sum;
    }
}

template <int64_t kColumns>
void multiply_columns(const SkinnyProduct& product, int64_t column) {
  int64_t row = 0;
  for (; row + 8 <= product.rows; row += 8) multiply_tile<8, kColumns>(product, row, column);
  for (; row + 4 <= product.rows; row += 4) multiply_tile<4, kColumns>(product, row, column);
  for (; row < product.rows; row++) multiply_tile<1, kColumns>(product, row, column);
}

}  // namespace

void multiply_skinny(const SkinnyProduct& product, int64_t begin, int64_t end) {
  int64_t column = begin;
  for (; column + 2 <= end; column += 2) multiply_columns<2>(product, column);
  if (column < end) multiply_columns<1>(product, column);
}

}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE
