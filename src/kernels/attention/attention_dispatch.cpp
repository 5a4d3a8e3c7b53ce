// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/attention_dispatch.hpp"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

#include "kernels/attention/short_attention.hpp"
#include "kernels/attention/tiled_attention.hpp"
#include "kernels/cached_results.hpp"
#include "kernels/compute_policy.hpp"
#include "kernels/dispatcher_override.hpp"
#include "kernels/matmul/emulated_matmul.hpp"
#include "kernels/matmul/microkernel.hpp"
#include "kernels/update/half_values.hpp"

namespace accel::kernels {
namespace {

using Forward = at::_ops::_scaled_dot_product_flash_attention_for_cpu;
using Backward = at::_ops::_scaled_dot_product_flash_attention_for_cpu_backward;
using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

bool is_short(const at::Tensor& query, const at::Tensor& key) {
  return query.is_cpu() && is_half(query.scalar_type()) && query.dim() == 4 && key.dim() == 4 && query.numel() > 0 &&
         key.numel() > 0 && ShortAttention::is_faster(query.scalar_type(), std::max(query.size(2), key.size(2))) &&
         compute_policy().use_tuned_kernels;
}

bool is_emulated_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
  const at::ScalarType dtype = query.scalar_type();
  return is_half(dtype) && query.is_cpu() && key.scalar_type() == dtype && value.scalar_type() == dtype &&
         compute_policy().use_tuned_kernels && is_emulated(dtype);
}

bool is_tiled(const at::Tensor& query) {
  if (!query.is_cpu() || !compute_policy().use_tuned_kernels) return false;
  if (is_half(query.scalar_type())) return is_emulated(query.scalar_type());
  return query.scalar_type() == at::kFloat &&
         at::globalContext().float32MatmulPrecision() == at::Float32MatmulPrecision::HIGHEST;
}

at::Tensor exact(const at::Tensor& tensor) {
  return is_half(tensor.scalar_type()) ? to_float32(tensor) : tensor.to(at::kFloat);
}

// The arguments of an attention without a mask and dropout. Invalid ones are left to LibTorch, for its errors.
struct Arguments {
  const at::Tensor &query, &key, &value;
  double dropout;
  bool is_causal;
  const std::optional<at::Tensor>& mask;
  std::optional<double> scale;

  template <typename Kernel>
  std::optional<Kernel> as() const {
    if (dropout != 0 || (mask && mask->defined()) || query.dim() != 4 || key.dim() != 4 || query.numel() == 0 ||
        key.numel() == 0 || key.scalar_type() != query.scalar_type() || value.scalar_type() != key.scalar_type() ||
        value.sizes() != key.sizes() || key.size(0) != query.size(0) || key.size(1) != query.size(1) ||
        key.size(3) != query.size(3))
      return std::nullopt;
    return Kernel{query, key, value, is_causal, scale.value_or(1 / std::sqrt(static_cast<double>(query.size(3))))};
  }

  std::optional<TiledAttention> tiled() const {
    if (!is_tiled(query)) return std::nullopt;
    const auto kernel = as<TiledAttention>();
    return kernel && kernel->is_supported() ? kernel : std::nullopt;
  }
  std::optional<ShortAttention> short_attention() const {
    return is_short(query, key) ? as<ShortAttention>() : std::nullopt;
  }
};

std::tuple<at::Tensor, at::Tensor> attention(c10::DispatchKeySet keys, const at::Tensor& query, const at::Tensor& key,
                                             const at::Tensor& value, double dropout, bool is_causal,
                                             const std::optional<at::Tensor>& mask, std::optional<double> scale) {
  const Arguments arguments{query, key, value, dropout, is_causal, mask, scale};
  if (const auto kernel = arguments.tiled()) return kernel->forward();
  if (is_emulated_attention(query, key, value)) {
    const auto exact_mask = mask && mask->defined() ? std::make_optional(exact(*mask)) : std::nullopt;
    auto [out, logsumexp] = Forward::redispatch(keys & kBelowOverrides, exact(query), exact(key), exact(value), dropout,
                                                is_causal, exact_mask, scale);
    return {rounded(out, query.scalar_type()), std::move(logsumexp)};
  }
  if (const auto kernel = arguments.short_attention()) return kernel->forward();
  return Forward::redispatch(keys & kBelowOverrides, query, key, value, dropout, is_causal, mask, scale);
}

// LibTorch's backward is several times as fast in float32 where the processor has no instructions for half precision,
// and on every processor with a mask, which ShortAttention does not support.
Gradients exact_backward(c10::DispatchKeySet keys, const at::Tensor& out_gradient, const at::Tensor& query,
                         const at::Tensor& key, const at::Tensor& value, const at::Tensor& out,
                         const at::Tensor& logsumexp, double dropout, bool is_causal,
                         const std::optional<at::Tensor>& mask, std::optional<double> scale) {
  const at::ScalarType dtype = query.scalar_type();
  const auto exact_mask = mask && mask->defined() ? std::make_optional(exact(*mask)) : std::nullopt;
  const auto [of_query, of_key, of_value] =
      Backward::redispatch(keys & kBelowOverrides, exact(out_gradient), exact(query), exact(key), exact(value),
                           exact(out), logsumexp, dropout, is_causal, exact_mask, scale);
  return {rounded(of_query, dtype), rounded(of_key, dtype), rounded(of_value, dtype)};
}

Gradients attention_backward(c10::DispatchKeySet keys, const at::Tensor& out_gradient, const at::Tensor& query,
                             const at::Tensor& key, const at::Tensor& value, const at::Tensor& out,
                             const at::Tensor& logsumexp, double dropout, bool is_causal,
                             const std::optional<at::Tensor>& mask, std::optional<double> scale) {
  const Arguments arguments{query, key, value, dropout, is_causal, mask, scale};
  if (const auto kernel = arguments.tiled()) return kernel->backward(out_gradient, out, logsumexp);
  if (is_emulated_attention(query, key, value))
    return exact_backward(keys, out_gradient, query, key, value, out, logsumexp, dropout, is_causal, mask, scale);
  if (const auto kernel = arguments.short_attention()) return kernel->backward(out_gradient, out, logsumexp);
  if (is_short(query, key) && mask && mask->defined())
    return exact_backward(keys, out_gradient, query, key, value, out, logsumexp, dropout, is_causal, mask, scale);
  return Backward::redispatch(keys & kBelowOverrides, out_gradient, query, key, value, out, logsumexp, dropout,
                              is_causal, mask, scale);
}

}  // namespace

void install_attention_dispatch() {
  static std::once_flag once;
  std::call_once(once, [] {
    load_microkernel();
    dispatcher_overrides().impl("_scaled_dot_product_flash_attention_for_cpu",
                                TORCH_FN(WithKeptResults<attention>::run));
    dispatcher_overrides().impl("_scaled_dot_product_flash_attention_for_cpu_backward", TORCH_FN(attention_backward));
  });
}

}  // namespace accel::kernels
