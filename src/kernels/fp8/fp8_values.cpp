#include "kernels/fp8/fp8_values.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/error.hpp"
#include "kernels/fp8/fp8_kernels.hpp"
#include "kernels/instruction_set.hpp"
#include "kernels/parallel.hpp"
#include "kernels/update/elementwise.hpp"

namespace accel::kernels {
namespace {

constexpr int64_t kCastPerThread = 1 << 15;

Float8Format float8_format(at::ScalarType dtype) {
  require(is_float8(dtype), Status::kInternal, dtype, " is not an 8-bit floating-point dtype");
  return dtype == at::kFloat8_e4m3fn ? Float8Format::kE4M3 : Float8Format::kE5M2;
}

int64_t rows_per_thread(int64_t columns) {
  return std::max<int64_t>(1, kCastPerThread / std::max<int64_t>(1, columns));
}

// NaN where one of them is NaN.
float larger_or_nan(float a, float b) { return a != a || a > b ? a : b; }

void require_rows(const at::Tensor& matrix, const at::Tensor& scales) {
  require(matrix.dim() == 2 && matrix.is_contiguous() && scales.numel() == matrix.size(0) && scales.is_contiguous() &&
              scales.scalar_type() == at::kFloat,
          Status::kInternal, "a matrix of ", matrix.sizes(), " with scales of ", scales.sizes(),
          "; expected a row-major one with a float32 scale of each row");
}

at::Tensor empty_like_in(const at::Tensor& values, at::ScalarType dtype) {
  require(values.is_non_overlapping_and_dense(), Status::kInternal, "values of ", values.sizes(), " are not dense");
  return at::empty_strided(values.sizes(), values.strides(), values.options().dtype(dtype));
}

}  // namespace

bool is_float8(at::ScalarType dtype) { return dtype == at::kFloat8_e4m3fn || dtype == at::kFloat8_e5m2; }

float largest_of(at::ScalarType dtype) { return float8_format(dtype) == Float8Format::kE4M3 ? 448.0f : 57344.0f; }

float largest_magnitude(const at::Tensor& values) {
  const auto kernel = ACCEL_FASTEST(fp8_kernels)().largest_magnitude;
  const ElementSpan span = span_of(values);
  std::mutex mutex;
  float largest = 0;
  parallel_for(values.numel(), kCastPerThread, [&](int64_t begin, int64_t end) {
    const float of_range = kernel(span, begin, end);
    const std::lock_guard lock(mutex);
    largest = larger_or_nan(of_range, largest);
  });
  return largest;
}

at::Tensor largest_magnitudes_of_rows(const at::Tensor& matrix) {
  const auto kernel = ACCEL_FASTEST(fp8_kernels)().largest_magnitude;
  const at::Tensor magnitudes = at::empty({matrix.size(0)}, matrix.options().dtype(at::kFloat));
  require_rows(matrix, magnitudes);
  const ElementSpan span = span_of(matrix);
  auto* const to = magnitudes.mutable_data_ptr<float>();
  const int64_t columns = matrix.size(1);
  parallel_for(matrix.size(0), rows_per_thread(columns), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++) to[row] = kernel(span, row * columns, (row + 1) * columns);
  });
  return magnitudes;
}

at::Tensor quantized(const at::Tensor& values, float scale, at::ScalarType dtype) {
  const auto kernel = ACCEL_FASTEST(fp8_kernels)().quantize;
  const at::Tensor result = empty_like_in(values, dtype);
  const ElementSpan from = span_of(values);
  auto* const to = static_cast<uint8_t*>(result.mutable_data_ptr());
  parallel_for(values.numel(), kCastPerThread,
               [&](int64_t begin, int64_t end) { kernel(from, scale, float8_format(dtype), to, begin, end); });
  return result;
}

at::Tensor quantized_rows(const at::Tensor& matrix, const at::Tensor& scales, at::ScalarType dtype) {
  require_rows(matrix, scales);
  const auto kernel = ACCEL_FASTEST(fp8_kernels)().quantize;
  const at::Tensor result = empty_like_in(matrix, dtype);
  const ElementSpan from = span_of(matrix);
  auto* const to = static_cast<uint8_t*>(result.mutable_data_ptr());
  const auto* const scale = scales.const_data_ptr<float>();
  const int64_t columns = matrix.size(1);
  parallel_for(matrix.size(0), rows_per_thread(columns), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++)
      kernel(from, scale[row], float8_format(dtype), to, row * columns, (row + 1) * columns);
  });
  return result;
}

at::Tensor dequantized(const at::Tensor& values, float scale, at::ScalarType dtype) {
  const auto kernel = ACCEL_FASTEST(fp8_kernels)().dequantize;
  const at::Tensor result = empty_like_in(values, dtype);
  const ElementSpan to = span_of(result);
  const auto* const from = static_cast<const uint8_t*>(values.const_data_ptr());
  const Float8Format format = float8_format(values.scalar_type());
  parallel_for(values.numel(), kCastPerThread,
               [&](int64_t begin, int64_t end) { kernel(from, format, scale, to, begin, end); });
  return result;
}

at::Tensor dequantized_rows(const at::Tensor& matrix, const at::Tensor& scales, at::ScalarType dtype) {
  require_rows(matrix, scales);
  const auto kernel = ACCEL_FASTEST(fp8_kernels)().dequantize;
  const at::Tensor result = empty_like_in(matrix, dtype);
  const ElementSpan to = span_of(result);
  const auto* const from = static_cast<const uint8_t*>(matrix.const_data_ptr());
  const Float8Format format = float8_format(matrix.scalar_type());
  const auto* const scale = scales.const_data_ptr<float>();
  const int64_t columns = matrix.size(1);
  parallel_for(matrix.size(0), rows_per_thread(columns), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++)
      kernel(from, format, scale[row], to, row * columns, (row + 1) * columns);
  });
  return result;
}

}  // namespace accel::kernels
