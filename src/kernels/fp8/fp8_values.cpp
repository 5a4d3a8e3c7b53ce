// SPDX-License-Identifier: Apache-2.0
#include "kernels/fp8/fp8_values.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <mutex>
#include <vector>

#include "base/error.hpp"
#include "kernels/instruction_set.hpp"
#include "kernels/parallel.hpp"
#include "kernels/update/elementwise.hpp"

namespace accel::kernels {
namespace {

constexpr int64_t kCastPerThread = 1 << 15;

int64_t lines_per_thread(int64_t length) { return std::max<int64_t>(1, kCastPerThread / std::max<int64_t>(1, length)); }

int64_t blocks_of(int64_t count) { return (count + kFp8Block - 1) / kFp8Block; }

constexpr int64_t kOneRun = std::numeric_limits<int64_t>::max() / 2;  // all numbers share a scale

void merge(const Fp8Counts& more, Fp8Counts& counts) {
  if (!(more.largest <= counts.largest) && !std::isnan(counts.largest)) counts.largest = more.largest;
  counts.saturated += more.saturated;
}

// The findings of several threads.
class SharedCounts {
 public:
  void add(const Fp8Counts& more) {
    const std::lock_guard lock(mutex_);
    merge(more, counts_);
  }
  Fp8Counts get() const { return counts_; }

 private:
  std::mutex mutex_;
  Fp8Counts counts_;
};

at::Tensor empty_like_in(const at::Tensor& values, at::ScalarType dtype) {
  require(values.is_non_overlapping_and_dense(), Status::kInternal, "values of ", values.sizes(), " are not dense");
  return at::empty_strided(values.sizes(), values.strides(), values.options().dtype(dtype));
}

void add_counts(const SharedCounts& found, Fp8Counts* counts) {
  if (counts != nullptr) merge(found.get(), *counts);
}

// A cast of a row-major matrix to 8 bits, with scales that it finds.
class MatrixCast {
 public:
  MatrixCast(const at::Tensor& matrix, at::ScalarType format, Fp8Granularity granularity, int64_t margin)
      : from_(span_of(matrix)),
        format_(float8_format(format)),
        has_blocks_(granularity == Fp8Granularity::kBlock),
        margin_(margin),
        rows_(matrix.size(0)),
        columns_(matrix.size(1)),
        values_(empty_like_in(matrix, format)),
        to_(static_cast<uint8_t*>(values_.mutable_data_ptr())) {}

  Fp8Matrix rows(SharedCounts& counts) const {
    const int64_t run = has_blocks_ ? kFp8Block : std::max<int64_t>(2, columns_),
                  runs = has_blocks_ ? blocks_of(columns_) : 1;
    const at::Tensor scales = has_blocks_ ? empty_scales({rows_, runs}) : empty_scales({rows_});
    auto* const reciprocals = scales.mutable_data_ptr<float>();
    parallel_for(rows_, lines_per_thread(columns_), [&](int64_t begin, int64_t end) {
      std::vector<float> magnitudes(static_cast<size_t>(runs)), multipliers(static_cast<size_t>(runs));
      Fp8Counts found;
      for (int64_t row = begin; row < end; row++) {
        std::fill(magnitudes.begin(), magnitudes.end(), 0.0f);
        kernels_.largest_magnitudes(from_, row * columns_, columns_, run, magnitudes.data());
        find_scales(magnitudes.data(), runs, multipliers.data(), reciprocals + row * runs);
        merge(kernels_.quantize(from_, row * columns_, columns_, multipliers.data(), run, format_, to_), found);
      }
      counts.add(found);
    });
    return {values_, scales};
  }

  // By strips, of all rows or of a block of them, and parts of their columns.
  Fp8Matrix columns(SharedCounts& counts) const {
    const int64_t strips = has_blocks_ ? blocks_of(rows_) : 1, parts = (columns_ + kColumnsOfPart - 1) / kColumnsOfPart;
    const int64_t height = has_blocks_ ? kFp8Block : rows_;
    const at::Tensor scales = empty_scales({strips, columns_});
    auto* const reciprocals = scales.mutable_data_ptr<float>();
    parallel_for(strips * parts, lines_per_thread(height * kColumnsOfPart), [&](int64_t begin, int64_t end) {
      Fp8Counts found;
      for (int64_t i = begin; i < end; i++) {
        const int64_t strip = i / parts, column = i % parts * kColumnsOfPart;
        merge(cast_part(strip * height, std::min((strip + 1) * height, rows_), column,
                        std::min(kColumnsOfPart, columns_ - column), reciprocals + strip * columns_ + column),
              found);
      }
      counts.add(found);
    });
    return {values_.t(), has_blocks_ ? scales.t().contiguous() : scales.view({columns_})};
  }

 private:
  static constexpr int64_t kColumnsOfPart = 512;

  at::Tensor empty_scales(at::IntArrayRef sizes) const { return at::empty(sizes, values_.options().dtype(at::kFloat)); }
  void find_scales(const float* magnitudes, int64_t count, float* scales, float* reciprocals) const {
    kernels_.find_scales(magnitudes, count, format_, margin_, has_blocks_, scales, reciprocals);
  }
  Fp8Counts cast_part(int64_t begin, int64_t end, int64_t column, int64_t width, float* reciprocals) const {
    std::array<float, kColumnsOfPart> magnitudes{}, multipliers;
    for (int64_t row = begin; row < end; row++)
      kernels_.largest_magnitudes(from_, row * columns_ + column, width, 1, magnitudes.data());
    find_scales(magnitudes.data(), width, multipliers.data(), reciprocals);
    Fp8Counts counts;
    for (int64_t row = begin; row < end; row++)
      merge(kernels_.quantize(from_, row * columns_ + column, width, multipliers.data(), 1, format_, to_), counts);
    return counts;
  }

  const Fp8CastKernels kernels_ = ACCEL_FASTEST(fp8_cast_kernels)();
  const ElementSpan from_;
  const Float8Format format_;
  const bool has_blocks_;
  const int64_t margin_, rows_, columns_;
  const at::Tensor values_;
  uint8_t* const to_;
};

Fp8Matrix quantize_lines(const at::Tensor& matrix, at::ScalarType format, Fp8Granularity granularity, int64_t margin,
                         bool by_columns, Fp8Counts* counts) {
  require(matrix.dim() == 2 && matrix.is_contiguous(), Status::kInternal, "a tensor of ", matrix.sizes(),
          " is cast to 8 bits; expected a row-major matrix");
  if (granularity == Fp8Granularity::kTensor) {
    Fp8Matrix whole = quantize_with(matrix, format, scale_of(largest_magnitude(matrix), format, margin), counts);
    if (by_columns) whole.values = whole.values.t();
    return whole;
  }
  const MatrixCast cast(matrix, format, granularity, margin);
  SharedCounts found;
  Fp8Matrix result = by_columns ? cast.columns(found) : cast.rows(found);
  add_counts(found, counts);
  return result;
}

}  // namespace

bool is_float8(at::ScalarType dtype) { return dtype == at::kFloat8_e4m3fn || dtype == at::kFloat8_e5m2; }

Float8Format float8_format(at::ScalarType dtype) {
  require(is_float8(dtype), Status::kInternal, dtype, " is not an 8-bit floating-point dtype");
  return dtype == at::kFloat8_e4m3fn ? Float8Format::kE4M3 : Float8Format::kE5M2;
}

float largest_of(at::ScalarType dtype) { return float8_format(dtype) == Float8Format::kE4M3 ? 448.0f : 57344.0f; }

float largest_magnitude(const at::Tensor& values) {
  const auto kernel = ACCEL_FASTEST(fp8_cast_kernels)().largest_magnitudes;
  const ElementSpan span = span_of(values);
  SharedCounts counts;
  parallel_for(values.numel(), kCastPerThread, [&](int64_t begin, int64_t end) {
    Fp8Counts of_range;
    kernel(span, begin, end - begin, kOneRun, &of_range.largest);
    counts.add(of_range);
  });
  return counts.get().largest;
}

float scale_of(float magnitude, at::ScalarType format, int64_t margin) {
  float scale = 1, reciprocal = 1;
  ACCEL_FASTEST(fp8_cast_kernels)
  ().find_scales(&magnitude, 1, float8_format(format), margin, false, &scale, &reciprocal);
  return scale;
}

Fp8Matrix quantize(const at::Tensor& matrix, at::ScalarType format, Fp8Granularity granularity, int64_t margin,
                   Fp8Counts* counts) {
  return quantize_lines(matrix, format, granularity, margin, false, counts);
}

Fp8Matrix quantize_columns(const at::Tensor& matrix, at::ScalarType format, Fp8Granularity granularity, int64_t margin,
                           Fp8Counts* counts) {
  return quantize_lines(matrix, format, granularity, margin, true, counts);
}

Fp8Matrix quantize_with(const at::Tensor& values, at::ScalarType format, float scale, Fp8Counts* counts) {
  const auto kernel = ACCEL_FASTEST(fp8_cast_kernels)().quantize;
  const at::Tensor result = empty_like_in(values, format);
  const ElementSpan from = span_of(values);
  auto* const to = static_cast<uint8_t*>(result.mutable_data_ptr());
  SharedCounts found;
  parallel_for(values.numel(), kCastPerThread, [&](int64_t begin, int64_t end) {
    found.add(kernel(from, begin, end - begin, &scale, kOneRun, float8_format(format), to));
  });
  add_counts(found, counts);
  return {result, at::full({1}, 1 / scale, result.options().dtype(at::kFloat))};
}

Fp8Granularity granularity_of(const Fp8Matrix& matrix) {
  const at::Tensor& scales = matrix.scales;
  if (scales.numel() == 1 && scales.dim() == 1) return Fp8Granularity::kTensor;
  const at::IntArrayRef sizes = matrix.values.sizes();
  const bool has_rows = sizes.size() == 2 && scales.dim() >= 1 && scales.size(0) == sizes[0];
  require(scales.scalar_type() == at::kFloat && scales.is_contiguous() && has_rows &&
              (scales.dim() == 1 || (scales.dim() == 2 && scales.size(1) == blocks_of(sizes[1]))),
          Status::kInternal, "an 8-bit matrix of ", sizes, " with scales of ", scales.sizes(),
          "; expected one, one of each row, or one of each 32 numbers of a row, in float32");
  return scales.dim() == 1 ? Fp8Granularity::kRow : Fp8Granularity::kBlock;
}

at::Tensor dequantize(const Fp8Matrix& matrix, at::ScalarType dtype) {
  const auto kernel = ACCEL_FASTEST(fp8_cast_kernels)().dequantize;
  const at::Tensor result = empty_like_in(matrix.values, dtype);
  const ElementSpan to = span_of(result);
  const auto* const from = static_cast<const uint8_t*>(matrix.values.const_data_ptr());
  const Float8Format format = float8_format(matrix.values.scalar_type());
  const Fp8Granularity granularity = granularity_of(matrix);
  if (granularity == Fp8Granularity::kTensor) {
    const auto* const scale = matrix.scales.const_data_ptr<float>();
    parallel_for(result.numel(), kCastPerThread,
                 [&](int64_t begin, int64_t end) { kernel(from, format, scale, kOneRun, to, begin, end - begin); });
    return result;
  }
  // Lines of memory, along which scales change, or which share them.
  const bool has_blocks = granularity == Fp8Granularity::kBlock, is_transposed = !result.is_contiguous();
  const at::Tensor scales = is_transposed ? matrix.scales.t().contiguous() : matrix.scales;
  const auto* const scale = scales.const_data_ptr<float>();
  const int64_t lines = result.size(is_transposed ? 1 : 0), length = result.size(is_transposed ? 0 : 1);
  const int64_t run = is_transposed ? 1 : has_blocks ? kFp8Block : kOneRun;
  parallel_for(lines, lines_per_thread(length), [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; line++) {
      const int64_t index = !is_transposed ? line * (has_blocks ? blocks_of(length) : 1)
                            : has_blocks   ? line / kFp8Block * length
                                           : 0;
      kernel(from, format, scale + index, run, to, line * length, length);
    }
  });
  return result;
}

}  // namespace accel::kernels
