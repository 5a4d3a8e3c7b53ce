// Compiled several times with different instruction sets (see meson.build and stored_number.hpp).
#include "kernels/factored_kernels.hpp"

#include "kernels/stored_number.hpp"

namespace accel::kernels::ACCEL_KERNEL_NAMESPACE {
namespace {

constexpr int kLanes = 16;
constexpr int64_t kRun = 1024;  // elements that are summed in float32 before the sum goes on in float64

// The sum over a row, in lanes that a vector register holds: the same order on every processor.
template <typename Term>
inline double sum_of_row(int64_t width, const Term& term) {
  double sum = 0;
  for (int64_t start = 0; start < width; start += kRun) {
    const int64_t end = start + kRun < width ? start + kRun : width;
    const int64_t whole = start + (end - start) / kLanes * kLanes;
    float lanes[kLanes] = {};
    for (int64_t i = start; i < whole; i += kLanes)
      for (int lane = 0; lane < kLanes; lane++) lanes[lane] += term(i + lane);
    for (int64_t i = whole; i < end; i++) lanes[i - whole] += term(i);
    for (int lane = 0; lane < kLanes; lane++) sum += static_cast<double>(lanes[lane]);
  }
  return sum;
}

struct Rows {
  Rows(const FactoredMatrix& matrix, int64_t group)
      : first(group * kRowGroup), last(first + kRowGroup < matrix.height ? first + kRowGroup : matrix.height) {}
  int64_t first;
  int64_t last;
};

// gradient / sqrt(estimate) of an element.
inline float step_of(float gradient, float row, float column, float least) {
  const float product = row * column;
  return gradient / __builtin_sqrtf(product < least ? least : product);
}

double measure(const FactoredMatrix& matrix, int64_t group, double* rows, float* columns) {
  const Rows own(matrix, group);
  const int64_t width = matrix.width;
  double parameter_squares = 0;
  for (int64_t j = 0; j < width; j++) columns[j] = 0;
  for (int64_t row = own.first; row < own.last; row++) {
    const float* const gradient = matrix.gradient + row * width;
    const float* const parameter = matrix.parameter + row * width;
    rows[row - own.first] = sum_of_row(width, [&](int64_t i) { return gradient[i] * gradient[i]; });
    ACCEL_VECTORISE
    for (int64_t j = 0; j < width; j++) columns[j] += gradient[j] * gradient[j];
    parameter_squares += sum_of_row(width, [&](int64_t i) { return parameter[i] * parameter[i]; });
  }
  return parameter_squares;
}

double step_squares(const FactoredMatrix& matrix, int64_t group) {
  const Rows own(matrix, group);
  double sum = 0;
  for (int64_t row = own.first; row < own.last; row++) {
    const float* const gradient = matrix.gradient + row * matrix.width;
    sum += sum_of_row(matrix.width, [&](int64_t i) {
      const float product = matrix.rows[row] * matrix.columns[i];
      return gradient[i] * gradient[i] / (product < matrix.least ? matrix.least : product);
    });
  }
  return sum;
}

void take_step(const FactoredMatrix& matrix, int64_t group, float keep, float rate) {
  const Rows own(matrix, group);
  for (int64_t row = own.first; row < own.last; row++) {
    const float* const gradient = matrix.gradient + row * matrix.width;
    float* const parameter = matrix.parameter + row * matrix.width;
    const float* const columns = matrix.columns;
    const float of_row = matrix.rows[row];
    const float least = matrix.least;
    ACCEL_VECTORISE
    for (int64_t j = 0; j < matrix.width; j++)
      parameter[j] = parameter[j] * keep - step_of(gradient[j], of_row, columns[j], least) * rate;
  }
}

}  // namespace

FactoredKernels factored_kernels() { return {measure, step_squares, take_step}; }

}  // namespace accel::kernels::ACCEL_KERNEL_NAMESPACE
