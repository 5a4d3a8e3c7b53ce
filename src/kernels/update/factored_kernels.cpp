// SPDX-License-Identifier: Apache-2.0
// Compiled several times with different instruction sets (see meson.build and stored_number.hpp).
#include "kernels/update/factored_kernels.hpp"

#include "kernels/update/stored_number.hpp"

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {
namespace {

// Partial sums in SIMD lanes, added in the same order on every processor; the compiler splits them into its registers.
constexpr int64_t kSumLanes = 16;
typedef float Lanes __attribute__((vector_size(kSumLanes * sizeof(float))));
constexpr int64_t kAhead = 512;  // elements to prefetch: the hardware prefetcher alone is slower
constexpr int64_t kRun = 1024;   // elements that are summed in float32 before they are added to a float64 sum

// Pads with 0. By reference: not every instruction set passes such vectors by value.
inline void load(const float* from, int64_t count, Lanes& lanes) {
  if (count == kSumLanes) {
    __builtin_memcpy(&lanes, from, sizeof(lanes));
  } else {
    lanes = Lanes{};
    for (int64_t i = 0; i < count; i++) lanes[i] = from[i];
  }
}

inline void store(const Lanes& lanes, int64_t count, float* to) {
  if (count == kSumLanes) {
    __builtin_memcpy(to, &lanes, sizeof(lanes));
  } else {
    for (int64_t i = 0; i < count; i++) to[i] = lanes[i];
  }
}

inline double sum_of(const Lanes& lanes) {
  double sum = 0;
  for (int64_t i = 0; i < kSumLanes; i++) sum += static_cast<double>(lanes[i]);
  return sum;
}

// Calls visit(i, count, lanes) for the elements of a row, where `lanes` are kSums sums to add to. One pass computes all
// sums: reading several arrays together is faster.
template <int kSums, typename Visit>
inline void sums_of_row(int64_t width, double (&sums)[kSums], const Visit& visit) {
  for (int64_t start = 0; start < width; start += kRun) {
    const int64_t end = start + kRun < width ? start + kRun : width;
    Lanes lanes[kSums] = {};
    int64_t i = start;
    for (; i + kSumLanes <= end; i += kSumLanes) visit(i, kSumLanes, lanes);
    if (i < end) visit(i, end - i, lanes);
    for (int sum = 0; sum < kSums; sum++) sums[sum] += sum_of(lanes[sum]);
  }
}

struct Rows {
  Rows(const FactoredMatrix& matrix, int64_t group)
      : first(group * kRowGroup), last(first + kRowGroup < matrix.height ? first + kRowGroup : matrix.height) {}
  int64_t first;
  int64_t last;
};

double measure(const FactoredMatrix& matrix, int64_t group, double* rows, float* columns) {
  const Rows own(matrix, group);
  const int64_t width = matrix.width;
  double parameter_squares = 0;
  for (int64_t j = 0; j < width; j++) columns[j] = 0;
  for (int64_t row = own.first; row < own.last; row++) {
    const float* const gradient = matrix.gradient + row * width;
    const float* const parameter = matrix.parameter + row * width;
    double sums[2] = {};
    sums_of_row(width, sums, [=](int64_t i, int64_t count, Lanes* lanes) {
      __builtin_prefetch(gradient + i + kAhead);
      __builtin_prefetch(parameter + i + kAhead);
      Lanes slope, number, column;
      load(gradient + i, count, slope);
      load(parameter + i, count, number);
      load(columns + i, count, column);
      lanes[0] += slope * slope;
      lanes[1] += number * number;
      column += slope * slope;
      store(column, count, columns + i);
    });
    rows[row - own.first] = sums[0];
    parameter_squares += sums[1];
  }
  return parameter_squares;
}

double step_squares(const FactoredMatrix& matrix, int64_t group) {
  const Rows own(matrix, group);
  const float* const columns = matrix.columns;
  const float most = matrix.most;
  double sums[1] = {};
  for (int64_t row = own.first; row < own.last; row++) {
    const float* const gradient = matrix.gradient + row * matrix.width;
    const float of_row = matrix.rows[row];
    sums_of_row(matrix.width, sums, [=](int64_t i, int64_t count, Lanes* lanes) {
      __builtin_prefetch(gradient + i + kAhead);
      Lanes slope, product;
      load(gradient + i, count, slope);
      load(columns + i, count, product);
      product *= of_row;
      const Lanes step = slope * (product > most ? Lanes{} + most : product);
      lanes[0] += step * step;
    });
  }
  return sums[0];
}

void take_step(const FactoredMatrix& matrix, int64_t group, float keep, float rate) {
  const Rows own(matrix, group);
  for (int64_t row = own.first; row < own.last; row++) {
    const float* const gradient = matrix.gradient + row * matrix.width;
    float* const parameter = matrix.parameter + row * matrix.width;
    const float* const columns = matrix.columns;
    const float of_row = matrix.rows[row];
    const float most = matrix.most;
    ACCEL_VECTORISE
    for (int64_t j = 0; j < matrix.width; j++) {
      const float product = of_row * columns[j];
      parameter[j] = parameter[j] * keep - gradient[j] * (product > most ? most : product) * rate;
    }
  }
}

}  // namespace

FactoredKernels factored_kernels() { return {measure, step_squares, take_step}; }

}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE
