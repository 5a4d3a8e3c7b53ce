// SPDX-License-Identifier: Apache-2.0
#include "kernels/update/foreach_quantization.hpp"

#include <ATen/ScalarOps.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <utility>

#include "kernels/update/elementwise.hpp"

namespace accel::kernels {
namespace {

constexpr int64_t kCodes = 256;
// These are those of BlockQuantization, of the signed and the unsigned format.
constexpr int kShift = 20;
constexpr int64_t kFirstOffset = (127 - 15) << 3, kSecondOffset = (127 - 31) << 3;
constexpr double kFirstSmallestNormal = 0x1p-14, kSecondSmallestNormal = 0x1p-30;

// All codes, and zeros that fill the last block of each tensor.
at::Tensor all_codes(const std::vector<QuantizedMoments>& moments) {
  const at::Tensor zeros = at::zeros({kBlock}, moments[0].first.options());
  std::vector<at::Tensor> codes;
  for (const auto member : {&QuantizedMoments::first, &QuantizedMoments::second})
    for (const QuantizedMoments& of : moments) {
      codes.push_back(of.*member);
      const int64_t missing = num_blocks(codes.back().numel()) * kBlock - codes.back().numel();
      if (missing > 0) codes.push_back(zeros.narrow(0, 0, missing));
    }
  return at::cat(codes);
}

std::vector<at::Tensor> all_scales(const std::vector<QuantizedMoments>& moments) {
  std::vector<at::Tensor> scales;
  for (const QuantizedMoments& of : moments) scales.push_back(of.first_scales);
  for (const QuantizedMoments& of : moments) scales.push_back(of.second_scales);
  return scales;
}

// The bits of the scales: see BlockQuantization::scale_for().
at::Tensor scale_bits_for(const at::Tensor& largest) {
  at::Tensor bits = largest.view(at::kInt).add(0x0fffff).bitwise_and_(0x7f800000);
  return bits.masked_fill_(bits.ge(0x7f000000), 0x7fc00000);
}

}  // namespace

at::Tensor decoded_codes(c10::Device device) {
  const at::Tensor codes = at::arange(kCodes, at::kByte), scale = at::ones({1}, at::kFloat);
  const at::Tensor decoded = at::empty({2 * kCodes}, at::kFloat);
  for (const int64_t i : {0, 1}) {
    ElementSpan span;
    span.data = codes.mutable_data_ptr();
    span.scales = scale.mutable_data_ptr<float>();
    span.format = i == 0 ? Format::kSigned8Bit : Format::kUnsigned8Bit;
    copy(span, span_of(decoded.narrow(0, i * kCodes, kCodes)), kCodes);
  }
  return decoded.to(device);
}

DecodedMoments::DecodedMoments(std::vector<QuantizedMoments> moments, const at::Tensor& decoded_codes)
    : moments_(std::move(moments)) {
  const at::Tensor codes = all_codes(moments_).to(at::kInt);
  const int64_t half = codes.numel() / 2;
  codes.narrow(0, half, half).add_(kCodes);
  values_ = decoded_codes.index_select(0, codes).view({-1, kBlock});
  values_.mul_(at::cat(all_scales(moments_)).view({-1, 1}));
  std::vector<at::Tensor> parts = parts_of(values_);
  const auto middle = parts.begin() + static_cast<std::ptrdiff_t>(moments_.size());
  first_.assign(parts.begin(), middle);
  second_.assign(middle, parts.end());
}

std::vector<at::Tensor> DecodedMoments::parts_of(const at::Tensor& rows) const {
  std::vector<at::Tensor> parts;
  const at::Tensor elements = rows.view({-1});
  int64_t begin = 0;
  for (int half = 0; half < 2; ++half)
    for (const QuantizedMoments& of : moments_) {
      parts.push_back(elements.narrow(0, begin, of.first.numel()));
      begin += num_blocks(of.first.numel()) * kBlock;
    }
  return parts;
}

void DecodedMoments::store() {
  const int64_t blocks = values_.size(0) / 2;
  const auto first_of = [blocks](const at::Tensor& rows) { return rows.narrow(0, 0, blocks); };
  const auto second_of = [blocks](const at::Tensor& rows) { return rows.narrow(0, blocks, blocks); };
  const at::Tensor scale_bits =
      scale_bits_for(at::linalg_vector_norm(values_, std::numeric_limits<double>::infinity(), 1, /*keepdim=*/true));
  values_.mul_(at::rsub(scale_bits, 0x7f000000).view(at::kFloat));
  const at::Tensor magnitudes = values_.abs();
  const at::Tensor lifted = at::empty_like(magnitudes);
  at::Tensor first_lifted = first_of(lifted), second_lifted = second_of(lifted);
  at::add_out(first_lifted, first_of(magnitudes), at::native::wrapped_scalar_tensor(kFirstSmallestNormal));
  at::add_out(second_lifted, second_of(magnitudes), at::native::wrapped_scalar_tensor(kSecondSmallestNormal));
  const at::Tensor codes = lifted.view(at::kInt).sub_(8 << kShift).clamp_min_(magnitudes.view(at::kInt));
  codes.add_(at::randint(1 << kShift, codes.sizes(), codes.options())).bitwise_right_shift_(kShift);
  first_of(codes).sub_(kFirstOffset).clamp_(0, 0x7f).add_(first_of(values_).signbit(), 0x80);
  second_of(codes).sub_(kSecondOffset).clamp_(0, 0xff).clamp_min_(second_of(magnitudes).ne(0));

  std::vector<at::Tensor> stored, scales;
  for (const QuantizedMoments& of : moments_) stored.push_back(of.first);
  for (const QuantizedMoments& of : moments_) stored.push_back(of.second);
  at::_foreach_copy_(stored, parts_of(codes));
  const at::Tensor new_scales = scale_bits.view(at::kFloat).view({-1});
  int64_t begin = 0;
  for (const at::Tensor& of : all_scales(moments_)) {
    scales.push_back(new_scales.narrow(0, begin, of.numel()));
    begin += of.numel();
  }
  at::_foreach_copy_(all_scales(moments_), scales);
}

}  // namespace accel::kernels
