// SPDX-License-Identifier: Apache-2.0
#include "kernels/gelu_dispatch.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu_backward_ops.h>
#include <ATen/ops/gelu_ops.h>

#include <mutex>
#include <optional>

#include "kernels/compute_policy.hpp"
#include "kernels/dispatcher_override.hpp"
#include "kernels/gelu_kernels.hpp"
#include "kernels/instruction_set.hpp"
#include "kernels/parallel.hpp"
#include "kernels/update/elementwise.hpp"
#include "kernels/update/half_values.hpp"

namespace accel::kernels {
namespace {

constexpr int64_t kElementsOfThread = 1 << 14;

// With AVX2 alone LibTorch's kernels of halves are faster, and those of the other formats slower.
bool has_faster_kernel(at::ScalarType dtype) {
  switch (fastest_instruction_set()) {
    case InstructionSet::kAvx512:
      return true;
    case InstructionSet::kAvx2:
      return dtype != at::kHalf;
    default:
      return false;
  }
}

bool is_supported(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.layout() == at::kStrided &&
         (tensor.scalar_type() == at::kFloat || is_half(tensor.scalar_type())) &&
         tensor.is_non_overlapping_and_dense() && has_faster_kernel(tensor.scalar_type()) &&
         compute_policy().use_tuned_kernels;
}

// Other names are left to LibTorch, for its error.
std::optional<GeluApproximation> approximation_of(c10::string_view name) {
  if (name == "none") return GeluApproximation::kNone;
  if (name == "tanh") return GeluApproximation::kTanh;
  return std::nullopt;
}

at::Tensor gelu(c10::DispatchKeySet keys, const at::Tensor& input, c10::string_view approximate) {
  const auto approximation = approximation_of(approximate);
  if (!approximation || !is_supported(input))
    return at::_ops::gelu::redispatch(keys & kBelowOverrides, input, approximate);
  const at::Tensor output = at::empty_like(input);
  const GeluKernels kernels = ACCEL_FASTEST(gelu_kernels)();
  const ElementSpan from = span_of(input), to = span_of(output);
  parallel_for(input.numel(), kElementsOfThread,
               [&](int64_t begin, int64_t end) { kernels.forward(*approximation, from, to, begin, end); });
  return output;
}

at::Tensor gelu_backward(c10::DispatchKeySet keys, const at::Tensor& output_gradient, const at::Tensor& input,
                         c10::string_view approximate) {
  const auto approximation = approximation_of(approximate);
  const bool is_tuned = approximation && is_supported(input) && is_supported(output_gradient) &&
                        output_gradient.scalar_type() == input.scalar_type() &&
                        output_gradient.sizes() == input.sizes() && output_gradient.strides() == input.strides();
  if (!is_tuned)
    return at::_ops::gelu_backward::redispatch(keys & kBelowOverrides, output_gradient, input, approximate);
  const at::Tensor input_gradient = at::empty_like(input);
  const GeluKernels kernels = ACCEL_FASTEST(gelu_kernels)();
  const ElementSpan from = span_of(input), gradient = span_of(output_gradient), to = span_of(input_gradient);
  parallel_for(input.numel(), kElementsOfThread,
               [&](int64_t begin, int64_t end) { kernels.backward(*approximation, from, gradient, to, begin, end); });
  return input_gradient;
}

}  // namespace

void install_gelu_dispatch() {
  static std::once_flag once;
  std::call_once(once, [] {
    dispatcher_overrides().impl("gelu", TORCH_FN(gelu));
    dispatcher_overrides().impl("gelu_backward", TORCH_FN(gelu_backward));
  });
}

}  // namespace accel::kernels
