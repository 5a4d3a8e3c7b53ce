// SPDX-License-Identifier: Apache-2.0
#include "nn/layers/operator_routes.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_dropout.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <torch/library.h>

#include <optional>
#include <utility>

#include "nn/low_precision/fp8_activations.hpp"
#include "nn/low_precision/fp8_layers.hpp"

namespace accel::nn {
namespace {

std::optional<Fp8Activations> compression_of(const at::Tensor& input) {
  const auto layers = Fp8Layers::compressing(input.device().type());
  if (layers == nullptr) return std::nullopt;
  return std::optional<Fp8Activations>(std::in_place, input, layers->overflow_count());
}

// A kernel in front of that of an operator whose first argument is the input.
template <typename Operator, typename Schema = typename Operator::schema>
struct ActivationRoute;
template <typename Operator, typename Result, typename... Arguments>
struct ActivationRoute<Operator, Result(const at::Tensor&, Arguments...)> {
  static Result call(c10::DispatchKeySet keys, const at::Tensor& input, Arguments... arguments) {
    const auto scope = compression_of(input);
    return Operator::redispatch(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kFp8Route), input,
                                std::forward<Arguments>(arguments)...);
  }
};

// A gate, whose factors are both activations; other products have tables and masks.
at::Tensor route_gate(c10::DispatchKeySet keys, const at::Tensor& first, const at::Tensor& second) {
  const bool is_gate = first.requires_grad() && second.requires_grad() && first.sizes().equals(second.sizes());
  const auto scope = is_gate ? compression_of(first) : std::nullopt;
  return at::_ops::mul_Tensor::redispatch(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kFp8Route), first,
                                          second);
}

}  // namespace

void route_activations(torch::Library& operators) {
  operators.impl("layer_norm", TORCH_FN((&ActivationRoute<at::_ops::layer_norm>::call)));
  operators.impl("native_layer_norm", TORCH_FN((&ActivationRoute<at::_ops::native_layer_norm>::call)));
  operators.impl("rms_norm", TORCH_FN((&ActivationRoute<at::_ops::rms_norm>::call)));
  operators.impl("gelu", TORCH_FN((&ActivationRoute<at::_ops::gelu>::call)));
  operators.impl("silu", TORCH_FN((&ActivationRoute<at::_ops::silu>::call)));
  operators.impl("dropout", TORCH_FN((&ActivationRoute<at::_ops::dropout>::call)));
  operators.impl("native_dropout", TORCH_FN((&ActivationRoute<at::_ops::native_dropout>::call)));
  operators.impl("scaled_dot_product_attention",
                 TORCH_FN((&ActivationRoute<at::_ops::scaled_dot_product_attention>::call)));
  operators.impl("mul.Tensor", TORCH_FN(route_gate));
}

}  // namespace accel::nn
