// SPDX-License-Identifier: Apache-2.0
#include "kernels/rms_norm.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "kernels/instruction_set.hpp"
#include "kernels/parallel.hpp"
#include "kernels/rms_norm_rows.hpp"
#include "kernels/update/elementwise.hpp"
#include "kernels/update/half_values.hpp"

namespace accel::kernels {
namespace {

constexpr int64_t kNumbersOfTask = 1 << 15;

bool is_dense(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.is_contiguous();
}

}  // namespace

bool can_rms_norm(const at::Tensor& input, const at::Tensor& weight) {
  const at::ScalarType dtype = input.scalar_type();
  const bool has_gradient = at::GradMode::is_enabled() && (input.requires_grad() || weight.requires_grad());
  return !has_gradient && (dtype == at::kFloat || is_half(dtype)) && weight.scalar_type() == dtype && is_dense(input) &&
         is_dense(weight) && weight.dim() == 1 && input.dim() > 0 && input.size(-1) == weight.size(0) &&
         input.numel() > 0;
}

at::Tensor rms_norm(const at::Tensor& input, const at::Tensor& weight, double epsilon, NormWeight kind) {
  const at::Tensor result = at::empty_like(input);
  const RmsNormRows rows{input.size(-1),
                         span_of(input).format,
                         input.const_data_ptr(),
                         weight.const_data_ptr(),
                         result.mutable_data_ptr(),
                         static_cast<float>(epsilon),
                         kind == NormWeight::kAddsOne,
                         kind == NormWeight::kRoundedBefore};
  auto* const normalize = ACCEL_FASTEST(normalize_rows);
  parallel_for(input.numel() / rows.size, std::max<int64_t>(1, kNumbersOfTask / rows.size),
               [&](int64_t begin, int64_t end) { normalize(rows, begin, end); });
  return result;
}

}  // namespace accel::kernels
