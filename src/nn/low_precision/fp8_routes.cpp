// SPDX-License-Identifier: Apache-2.0
#include "nn/low_precision/fp8_routes.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <torch/library.h>

#include <memory>
#include <mutex>

#include "nn/layers/operator_routes.hpp"
#include "nn/low_precision/fp8_products.hpp"

namespace accel::nn {
namespace {

constexpr c10::DispatchKeySet kBelow(c10::DispatchKeySet::FULL_AFTER, kFp8Route);

// A covered weight in a product, and which of its dimensions has the outputs.
struct Factor {
  std::shared_ptr<Fp8Layer> layer;
  at::Tensor weight;
  int64_t output_dim;
};

bool fits(const at::Tensor& input, const at::Tensor& weight, int64_t output_dim) {
  return weight.dim() == 2 && input.dim() >= 1 && input.size(-1) == weight.size(1 - output_dim);
}

// Finds the factor of input * second. The second matrix is the weight [features, outputs], or the view that transposes
// one.
Factor factor_of(const at::Tensor& input, const at::Tensor& second) {
  if (second.dim() != 2) return {};
  const bool is_view = second.is_view();
  const at::Tensor weight = is_view ? at::Tensor(second._base()) : second;
  const int64_t output_dim = is_view ? 0 : 1;
  if (is_view && (weight.dim() != 2 || !second.sizes().equals({weight.size(1), weight.size(0)}) ||
                  !second.strides().equals({weight.stride(1), weight.stride(0)}) ||
                  second.storage_offset() != weight.storage_offset()))
    return {};
  if (!fits(input, weight, output_dim)) return {};
  return {Fp8Layers::of(input, weight), weight, output_dim};
}

at::Tensor multiply(const Factor& factor, const at::Tensor& input, const at::Tensor& bias) {
  return fp8_multiply(factor.layer, input, factor.weight, bias, factor.output_dim);
}

at::Tensor route_linear(c10::DispatchKeySet keys, const at::Tensor& input, const at::Tensor& weight,
                        const std::optional<at::Tensor>& bias) {
  if (fits(input, weight, 0))
    if (const auto layer = Fp8Layers::of(input, weight))
      return fp8_multiply(layer, input, weight, bias.value_or(at::Tensor()), /*output_dim=*/0);
  return at::_ops::linear::redispatch(keys & kBelow, input, weight, bias);
}

at::Tensor route_matmul(c10::DispatchKeySet keys, const at::Tensor& first, const at::Tensor& second) {
  const Factor factor = factor_of(first, second);
  return factor.layer != nullptr ? multiply(factor, first, {})
                                 : at::_ops::matmul::redispatch(keys & kBelow, first, second);
}

at::Tensor route_mm(c10::DispatchKeySet keys, const at::Tensor& first, const at::Tensor& second) {
  const Factor factor = first.dim() == 2 ? factor_of(first, second) : Factor();
  return factor.layer != nullptr ? multiply(factor, first, {}) : at::_ops::mm::redispatch(keys & kBelow, first, second);
}

at::Tensor route_addmm(c10::DispatchKeySet keys, const at::Tensor& added, const at::Tensor& first,
                       const at::Tensor& second, const at::Scalar& beta, const at::Scalar& alpha) {
  const bool is_bias = added.dim() == 1 && second.dim() == 2 && added.size(0) == second.size(1) && first.dim() == 2 &&
                       beta.equal(1) && alpha.equal(1);
  const Factor factor = is_bias ? factor_of(first, second) : Factor();
  return factor.layer != nullptr ? multiply(factor, first, added)
                                 : at::_ops::addmm::redispatch(keys & kBelow, added, first, second, beta, alpha);
}

// Never destroyed: operators may run while the process ends.
torch::Library& library_of(const char* name_space) {
  return *std::make_unique<torch::Library>(torch::Library::IMPL, name_space, kFp8Route, __FILE__, __LINE__).release();
}

}  // namespace

std::shared_ptr<Fp8Layers> make_fp8_layers(const precision::Fp8Recipe& recipe, Fp8Selection selection,
                                           c10::Device device) {
  static std::once_flag once;
  std::call_once(once, [] {
    library_of("_").fallback(torch::CppFunction::makeFallthrough());
    torch::Library& operators = library_of("aten");
    operators.impl("linear", TORCH_FN(route_linear));
    operators.impl("matmul", TORCH_FN(route_matmul));
    operators.impl("mm", TORCH_FN(route_mm));
    operators.impl("addmm", TORCH_FN(route_addmm));
    route_activations(operators);
  });
  return std::make_shared<Fp8Layers>(recipe, std::move(selection), device);
}

}  // namespace accel::nn
