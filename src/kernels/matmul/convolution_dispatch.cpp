// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul/convolution_dispatch.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/convolution_backward_ops.h>
#include <ATen/ops/convolution_ops.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <array>
#include <mutex>
#include <optional>
#include <tuple>

#include "kernels/cached_results.hpp"
#include "kernels/compute_policy.hpp"
#include "kernels/dispatcher_override.hpp"
#include "kernels/matmul/emulated_matmul.hpp"
#include "kernels/update/half_values.hpp"

namespace accel::kernels {
namespace {

using ConvolutionGradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

bool is_emulated_convolution(const at::Tensor& input, const at::Tensor& weight) {
  const at::ScalarType dtype = input.scalar_type();
  return is_half(dtype) && input.is_cpu() && input.layout() == at::kStrided && weight.scalar_type() == dtype &&
         weight.is_cpu() && weight.layout() == at::kStrided && input.numel() > 0 && weight.numel() > 0 &&
         compute_policy().use_tuned_kernels && is_emulated(dtype);
}

at::Tensor convolution(c10::DispatchKeySet keys, const at::Tensor& input, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, c10::SymIntArrayRef stride, c10::SymIntArrayRef padding,
                       c10::SymIntArrayRef dilation, bool transposed, c10::SymIntArrayRef output_padding,
                       c10::SymInt groups) {  // NOLINT(performance-unnecessary-value-param): as registered
  const at::ScalarType dtype = input.scalar_type();
  const bool has_bias = bias && bias->defined();
  if (!is_emulated_convolution(input, weight) || (has_bias && bias->scalar_type() != dtype))
    return at::_ops::convolution::redispatch(keys & kBelowOverrides, input, weight, bias, stride, padding, dilation,
                                             transposed, output_padding, groups);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const auto exact_bias = has_bias ? std::make_optional(to_float32(*bias)) : std::nullopt;
  return rounded(
      at::_ops::convolution::redispatch(keys & kBelowOverrides, to_float32(input), to_float32(weight), exact_bias,
                                        stride, padding, dilation, transposed, output_padding, groups),
      dtype);
}

ConvolutionGradients convolution_backward(
    c10::DispatchKeySet keys, const at::Tensor& out_gradient, const at::Tensor& input, const at::Tensor& weight,
    at::OptionalSymIntArrayRef bias_sizes, c10::SymIntArrayRef stride, c10::SymIntArrayRef padding,
    c10::SymIntArrayRef dilation, bool transposed, c10::SymIntArrayRef output_padding,
    c10::SymInt groups,  // NOLINT(performance-unnecessary-value-param): as registered
    std::array<bool, 3> wanted) {
  const at::ScalarType dtype = input.scalar_type();
  if (!is_emulated_convolution(input, weight) || out_gradient.scalar_type() != dtype)
    return at::_ops::convolution_backward::redispatch(keys & kBelowOverrides, out_gradient, input, weight, bias_sizes,
                                                      stride, padding, dilation, transposed, output_padding, groups,
                                                      wanted);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const auto [of_input, of_weight, of_bias] = at::_ops::convolution_backward::redispatch(
      keys & kBelowOverrides, to_float32(out_gradient), to_float32(input), to_float32(weight), bias_sizes, stride,
      padding, dilation, transposed, output_padding, groups, wanted);
  const auto given = [dtype](const at::Tensor& values) { return values.defined() ? rounded(values, dtype) : values; };
  return {given(of_input), given(of_weight), given(of_bias)};
}

}  // namespace

void install_convolution_dispatch() {
  static std::once_flag once;
  std::call_once(once, [] {
    dispatcher_overrides().impl("convolution", TORCH_FN(WithKeptResults<convolution>::run));
    dispatcher_overrides().impl("convolution_backward", TORCH_FN(convolution_backward));
  });
}

}  // namespace accel::kernels
