// SPDX-License-Identifier: Apache-2.0
#include "nn/low_precision/fp8_cast.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_scaled_mm.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp2.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/log2.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace accel::nn {
namespace {

using kernels::Fp8Granularity;
using kernels::Fp8Matrix;

constexpr int64_t kBlock = 32;  // neighbours that share a scale

Fp8Matrix cast_on_host(const at::Tensor& matrix, const Fp8Cast& cast, bool of_columns, const DelayedScale& delayed,
                       Fp8Overflows& overflows) {
  const at::Tensor rows = matrix.contiguous();
  const bool is_whole = cast.granularity == Fp8Granularity::kTensor;
  const float former = delayed.scale.defined() ? *delayed.scale.const_data_ptr<float>() : 0;
  kernels::Fp8Counts counts;
  Fp8Matrix made;
  if (former > 0)
    made = kernels::quantize_with(rows, cast.format, former, &counts);
  else if (of_columns && !is_whole)
    made = kernels::quantize_columns(rows, cast.format, cast.granularity, cast.margin, &counts);
  else
    made = kernels::quantize(rows, cast.format, cast.granularity, cast.margin, &counts);
  if (delayed.magnitude.defined()) {
    float& magnitude = *delayed.magnitude.mutable_data_ptr<float>();
    if (std::isfinite(counts.largest)) magnitude = std::max(magnitude, counts.largest);
  }
  overflows.add(counts.saturated);
  return of_columns && is_whole ? transposed(made) : made;
}

// Zeros, infinities and NaN have no scale: they are cast as they are.
at::Tensor usable(const at::Tensor& scale) { return at::where(scale.isfinite().logical_and(scale.gt(0)), scale, 1.0f); }

at::Tensor scales_for(const at::Tensor& magnitudes, const Fp8Cast& cast) {
  const float largest = kernels::largest_of(cast.format);
  const float factor = std::ldexp(1.0f, -static_cast<int>(cast.margin));
  if (cast.granularity != Fp8Granularity::kBlock) return usable(largest / magnitudes * factor);
  // In double, in which a quotient that is no power of two does not become one.
  const at::Tensor exponents = at::floor(at::log2(largest / magnitudes.to(at::kDouble)));
  return usable(at::exp2(exponents - static_cast<double>(cast.margin)).to(at::kFloat));
}

// The rows in blocks, [rows, blocks, 32], the last ones filled up with zeros.
at::Tensor blocks_of(const at::Tensor& rows) {
  const int64_t missing = (kBlock - rows.size(1) % kBlock) % kBlock;
  const at::Tensor whole = missing == 0 ? rows : at::constant_pad_nd(rows, {0, missing});
  return whole.reshape({rows.size(0), -1, kBlock});
}

// One number of each row of `to` from scales [1], [rows] or [rows, blocks].
at::Tensor spread(const at::Tensor& scales, const at::Tensor& to) {
  if (scales.dim() == 1) return scales.numel() == 1 ? scales : scales.unsqueeze(1);
  return scales.repeat_interleave(kBlock, 1).narrow(1, 0, to.size(1));
}

// Where rounding to nearest, ties to even, does not give the largest number by itself.
at::Tensor saturated(const at::Tensor& scaled, at::ScalarType format) {
  return format == at::kFloat8_e4m3fn ? scaled.abs().gt(464) : scaled.abs().ge(61440);
}

Fp8Matrix cast_on_device(const at::Tensor& rows, const Fp8Cast& cast, const DelayedScale& delayed,
                         Fp8Overflows& overflows) {
  const float largest = kernels::largest_of(cast.format);
  const at::Tensor numbers = rows.to(at::kFloat);
  if (numbers.numel() == 0) return {rows.to(cast.format), at::zeros({1}, numbers.options()).fill_(1)};
  const at::Tensor magnitudes = cast.granularity == Fp8Granularity::kTensor ? numbers.abs().amax().reshape({1})
                                : cast.granularity == Fp8Granularity::kRow  ? numbers.abs().amax(1)
                                                                            : blocks_of(numbers).abs().amax(2);
  at::Tensor scales = scales_for(magnitudes, cast);
  if (delayed.scale.defined()) scales = at::where(delayed.scale.gt(0), delayed.scale, scales);
  if (delayed.magnitude.defined()) {
    const at::Tensor finite = at::where(magnitudes.isfinite(), magnitudes, 0.0f);
    delayed.magnitude.copy_(at::maximum(delayed.magnitude, finite));
  }
  const at::Tensor scaled = numbers * spread(scales, numbers);
  overflows.add(saturated(scaled, cast.format).sum());
  return {scaled.clamp(-largest, largest).to(cast.format), scales.reciprocal()};
}

// Whether LibTorch has a kernel for products of 8-bit numbers on the device.
bool has_scaled_product(c10::Device device) {
  static const auto scaled_product = c10::Dispatcher::singleton().findSchemaOrThrow("aten::_scaled_mm", "");
  return scaled_product.hasKernelForDispatchKey(c10::computeDispatchKey(std::nullopt, std::nullopt, device));
}

bool is_of_rows(const Fp8Matrix& matrix) { return matrix.scales.dim() == 1 && matrix.scales.numel() > 1; }

constexpr int64_t kWhole = 16;  // bytes that tensor cores read together

// Tensor cores multiply formats of which one is E4M3.
bool takes_scaled_product(const Fp8Matrix& first, const Fp8Matrix& second) {
  const int64_t columns = second.values.size(0);
  if (!has_scaled_product(first.values.device()) || first.values.numel() == 0 || columns == 0 || columns % kWhole != 0)
    return false;
  if (second.values.scalar_type() != at::kFloat8_e4m3fn && first.values.scalar_type() != at::kFloat8_e4m3fn)
    return false;
  const bool have_one = first.scales.numel() == 1 && second.scales.numel() == 1;
  return have_one || (is_of_rows(first) && is_of_rows(second));
}

// Row-major, with inner elements that are filled up with zeros.
at::Tensor in_whole_rows(const at::Tensor& values) {
  const at::Tensor rows = values.contiguous();
  const int64_t missing = (kWhole - rows.size(1) % kWhole) % kWhole;
  if (missing == 0) return rows;
  return at::constant_pad_nd(rows.view(at::kByte), {0, missing}).view(values.scalar_type());
}

// By scales of rows LibTorch computes in bfloat16 alone.
at::Tensor scaled_product(const Fp8Matrix& first, const Fp8Matrix& second, at::ScalarType dtype) {
  const bool have_one = first.scales.numel() == 1;
  const at::Tensor sums = at::_scaled_mm(in_whole_rows(first.values), in_whole_rows(second.values).t(),
                                         have_one ? first.scales : first.scales.unsqueeze(1).contiguous(),
                                         have_one ? second.scales : second.scales.unsqueeze(0).contiguous(), {}, {},
                                         have_one ? dtype : at::kBFloat16);
  return sums.to(dtype);
}

// In float32.
at::Tensor sums_of(const Fp8Matrix& first, const Fp8Matrix& second) {
  const at::Tensor left = first.values.to(at::kFloat), right = second.values.to(at::kFloat);
  const bool has_blocks = first.scales.dim() == 2 || second.scales.dim() == 2;
  if (has_blocks) return at::mm(left * spread(first.scales, left), (right * spread(second.scales, right)).t());
  const at::Tensor rows = spread(first.scales, left), columns = spread(second.scales, right);
  return at::mm(left, right.t()).mul_(rows * (columns.dim() == 2 ? columns.t() : columns));
}

}  // namespace

void Fp8Overflows::add(const at::Tensor& count) {
  const std::lock_guard lock(mutex_);
  if (!on_device_.defined()) on_device_ = at::zeros({}, count.options().dtype(at::kLong));
  on_device_.add_(count);
}

int64_t Fp8Overflows::total() const {
  const std::lock_guard lock(mutex_);
  return on_host_ + (on_device_.defined() ? on_device_.item<int64_t>() : 0);
}

Fp8Matrix transposed(const Fp8Matrix& matrix) { return {matrix.values.t(), matrix.scales}; }

Fp8Matrix fp8_cast(const at::Tensor& matrix, const Fp8Cast& cast, bool of_columns, const DelayedScale& delayed,
                   Fp8Overflows& overflows) {
  if (matrix.is_cpu()) return cast_on_host(matrix, cast, of_columns, delayed, overflows);
  const bool is_whole = cast.granularity == Fp8Granularity::kTensor;
  if (!of_columns) return cast_on_device(matrix, cast, delayed, overflows);
  if (is_whole) return transposed(cast_on_device(matrix, cast, delayed, overflows));
  return cast_on_device(matrix.t(), cast, delayed, overflows);
}

at::Tensor fp8_numbers(const Fp8Matrix& matrix, at::ScalarType dtype) {
  if (matrix.values.is_cpu()) return kernels::dequantize(matrix, dtype);
  const at::Tensor numbers = matrix.values.to(at::kFloat);
  return (numbers * spread(matrix.scales, numbers)).to(dtype);
}

at::Tensor fp8_product(const Fp8Matrix& first, const Fp8Matrix& second, const at::Tensor& bias, at::ScalarType dtype) {
  if (first.values.is_cpu()) {
    const std::vector<int64_t> sizes = {first.values.size(0), second.values.size(0)};
    at::Tensor result = at::empty(sizes, first.values.options().dtype(dtype));
    kernels::fp8_matmul(first, transposed(second), bias, result);
    return result;
  }
  if (takes_scaled_product(first, second)) {
    const at::Tensor sums = scaled_product(first, second, dtype);
    return bias.defined() ? sums + bias.to(dtype) : sums;
  }
  at::Tensor sums = sums_of(first, second);
  if (bias.defined()) sums.add_(bias);
  return sums.to(dtype);
}

}  // namespace accel::nn
