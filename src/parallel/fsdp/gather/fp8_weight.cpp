// SPDX-License-Identifier: Apache-2.0
#include "parallel/fsdp/gather/fp8_weight.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <cstring>
#include <utility>

namespace accel::parallel {
namespace {

using kernels::Fp8Granularity;
using kernels::Fp8Matrix;
using kernels::kFp8Block;

constexpr int64_t kMantissaBits = 23;  // of float32, below its exponent

int32_t bits_of(float value) {
  int32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

float from_bits(int32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// kernels::scale_of() on a device, where magnitudes are float32.
at::Tensor scales_of(const at::Tensor& magnitudes, at::ScalarType format, int64_t margin) {
  const at::Tensor wanted = kernels::largest_of(format) / magnitudes;
  const at::Tensor scales = wanted * std::ldexp(1.0, -static_cast<int>(margin));
  const at::Tensor are_usable = wanted.isfinite().logical_and_(magnitudes.isfinite()).logical_and_(scales.ge(0x1p-126));
  return at::where(are_usable, scales, 1.0f);
}

// The blocks of each row, the last one filled up with zeros: [rows, blocks, kFp8Block].
at::Tensor in_blocks(const at::Tensor& matrix) {
  const int64_t missing = (kFp8Block - matrix.size(1) % kFp8Block) % kFp8Block;
  return at::constant_pad_nd(matrix, {0, missing}).view({matrix.size(0), -1, kFp8Block});
}

at::Tensor dequantize_on_device(const Fp8Matrix& matrix, Fp8Granularity granularity, at::ScalarType dtype) {
  const at::Tensor numbers = matrix.values.to(at::kFloat);
  if (granularity == Fp8Granularity::kTensor) return numbers.mul(matrix.scales).to(dtype);
  if (granularity == Fp8Granularity::kRow) return numbers.mul(matrix.scales.unsqueeze(1)).to(dtype);
  const at::Tensor all = in_blocks(numbers).mul(matrix.scales.unsqueeze(2)).view({numbers.size(0), -1});
  return all.narrow(1, 0, numbers.size(1)).to(dtype).contiguous();
}

}  // namespace

Fp8Weight::Fp8Weight(const ShardedParameter& parameter, Fp8GatherPtr gather)
    : parameter_(parameter), gather_(std::move(gather)) {}

int64_t Fp8Weight::blocks() const { return (parameter_.layout().shape()[1] + kFp8Block - 1) / kFp8Block; }

int64_t Fp8Weight::scales_per_rank() const {
  if (has_one_scale()) return 0;
  const ShardLayout& layout = parameter_.layout();
  const int64_t columns = layout.shape()[1];
  const int64_t rows = columns == 0 ? 0 : layout.elements_per_rank() / columns;
  return gather_->granularity == Fp8Granularity::kRow ? rows : rows * blocks();
}

// A power of two has a byte, its exponent.
at::ScalarType Fp8Weight::scales_dtype() const {
  return gather_->granularity == Fp8Granularity::kBlock ? at::kByte : at::kFloat;
}

at::Tensor Fp8Weight::largest_bits() const {
  const at::Tensor& rows = parameter_.shard();
  const auto options = rows.options().dtype(at::kInt);
  if (rows.is_cpu()) return at::full({1}, bits_of(kernels::largest_magnitude(rows)), options);
  if (rows.numel() == 0) return at::zeros({1}, options);
  return rows.abs().amax().to(at::kFloat).reshape({1}).view(at::kInt);
}

void Fp8Weight::set_largest_bits(const at::Tensor& bits) {
  if (parameter_.shard().is_cpu()) {
    const float scale = kernels::scale_of(from_bits(bits.item<int32_t>()), gather_->format, gather_->margin);
    scale_ = at::full({1}, scale);
    factor_ = at::full({1}, 1 / scale).to(bits.device());
    return;
  }
  scale_ = scales_of(bits.view(at::kFloat), gather_->format, gather_->margin);
  factor_ = scale_.reciprocal();
}

void Fp8Weight::cast_rows(const at::Tensor& values, const at::Tensor& scales) const {
  const at::Tensor rows = parameter_.shard();
  if (rows.numel() == 0) return;
  const Fp8Matrix matrix = nn::fp8_cast(rows, {gather_->format, gather_->granularity, gather_->margin},
                                        /*of_columns=*/false, {scale_, {}}, *gather_->overflows);
  values.narrow(0, 0, rows.numel()).copy_(matrix.values.view({-1}).view(at::kByte));
  if (has_one_scale()) return;
  const at::Tensor sent = gather_->granularity == Fp8Granularity::kRow
                              ? matrix.scales
                              : matrix.scales.view(at::kInt).bitwise_right_shift(kMantissaBits);
  scales.narrow(0, 0, sent.numel()).copy_(sent.view({-1}));
}

Fp8Matrix Fp8Weight::whole(const at::Tensor& values, const at::Tensor& scales) const {
  const std::vector<int64_t>& shape = parameter_.layout().shape();
  const at::Tensor matrix = values.narrow(0, 0, shape[0] * shape[1]).view(gather_->format).view(shape);
  if (has_one_scale()) return {matrix, factor_};
  if (gather_->granularity == Fp8Granularity::kRow) return {matrix, scales.narrow(0, 0, shape[0])};
  const at::Tensor exponents = scales.narrow(0, 0, shape[0] * blocks()).to(at::kInt);
  return {matrix, exponents.bitwise_left_shift(kMantissaBits).view(at::kFloat).view({shape[0], blocks()})};
}

at::Tensor Fp8Weight::numbers_of(const Fp8Matrix& matrix) const {
  const at::ScalarType dtype = parameter_.layout().compute_dtype();
  return matrix.values.is_cpu() ? kernels::dequantize(matrix, dtype)
                                : dequantize_on_device(matrix, gather_->granularity, dtype);
}

void Fp8Weight::give(const Fp8Matrix& gathered) const {
  if (gather_->given != nullptr) gather_->given(parameter_.tensor(), gathered);
}

}  // namespace accel::parallel
