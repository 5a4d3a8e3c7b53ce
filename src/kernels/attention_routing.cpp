#include "kernels/attention_routing.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <tuple>

#include "kernels/compute_policy.hpp"
#include "kernels/operator_routes.hpp"

namespace accel::kernels {
namespace {

using Below = at::_ops::_scaled_dot_product_flash_attention_for_cpu_backward;
using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

constexpr int64_t kLongest = 192;  // positions

bool is_routed(const at::Tensor& query, const at::Tensor& key) {
  if (!query.is_cpu() || !at::isReducedFloatingType(query.scalar_type()) || query.dim() != 4 || key.dim() != 4)
    return false;
  return std::max(query.size(2), key.size(2)) <= kLongest && compute_policy().routed_products;
}

Gradients attention_backward(c10::DispatchKeySet keys, const at::Tensor& out_gradient, const at::Tensor& query,
                             const at::Tensor& key, const at::Tensor& value, const at::Tensor& out,
                             const at::Tensor& logsumexp, double dropout, bool is_causal,
                             const std::optional<at::Tensor>& mask, std::optional<double> scale) {
  if (!is_routed(query, key))
    return Below::redispatch(keys & kBelowRoutes, out_gradient, query, key, value, out, logsumexp, dropout, is_causal,
                             mask, scale);
  const at::ScalarType dtype = query.scalar_type();
  const auto exact = [&](const at::Tensor& tensor) {
    return tensor.scalar_type() == dtype ? tensor.to(at::kFloat) : tensor;
  };
  std::optional<at::Tensor> exact_mask = mask;
  if (mask && mask->defined()) exact_mask = exact(*mask);
  const auto [of_query, of_key, of_value] =
      Below::redispatch(keys & kBelowRoutes, exact(out_gradient), exact(query), exact(key), exact(value), exact(out),
                        logsumexp, dropout, is_causal, exact_mask, scale);
  return {of_query.to(dtype), of_key.to(dtype), of_value.to(dtype)};
}

}  // namespace

void install_attention_routing() {
  static std::once_flag once;
  std::call_once(once, [] {
    operator_routes().impl("_scaled_dot_product_flash_attention_for_cpu_backward", TORCH_FN(attention_backward));
  });
}

}  // namespace accel::kernels
