// SPDX-License-Identifier: Apache-2.0
#include "nn/low_precision/fp8_layers.hpp"

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <string>

#include "config/generated/choices/fp8_format.hpp"
#include "config/generated/choices/fp8_scaling.hpp"
#include "nn/low_precision/fp8_products.hpp"
#include "precision/autocast.hpp"

namespace accel::nn {
namespace {

thread_local const Fp8Layers::Scope* innermost_layers = nullptr;

kernels::Fp8Granularity granularity_of(Fp8Scaling scaling) {
  if (scaling == Fp8Scaling::kRowwise) return kernels::Fp8Granularity::kRow;
  return scaling == Fp8Scaling::kBlockwise ? kernels::Fp8Granularity::kBlock : kernels::Fp8Granularity::kTensor;
}

Fp8Scheme scheme_of(const precision::Fp8Recipe& recipe) {
  Fp8Scheme scheme;
  scheme.operands = recipe.format == Fp8Format::kE5m2 ? at::kFloat8_e5m2 : at::kFloat8_e4m3fn;
  scheme.gradients = recipe.format == Fp8Format::kE4m3 ? at::kFloat8_e4m3fn : at::kFloat8_e5m2;
  scheme.granularity = granularity_of(recipe.scaling);
  scheme.margin = recipe.margin;
  scheme.forward = !recipe.override_forward;
  scheme.input_gradient = !recipe.override_input_gradient;
  scheme.weight_gradient = !recipe.override_weight_gradient;
  return scheme;
}

bool is_plain(const at::Tensor& tensor) {
  return is_cast_to_fp8(tensor.scalar_type()) && tensor.layout() == at::kStrided && tensor.has_storage() &&
         !tensor.unsafeGetTensorImpl()->is_python_dispatch();
}

}  // namespace

Fp8Layers::Fp8Layers(const precision::Fp8Recipe& recipe, Fp8Selection selection, c10::Device device)
    : recipe_(recipe), selection_(std::move(selection)) {
  const Fp8Scheme scheme = scheme_of(recipe);
  std::vector<std::string> names;
  for (const auto& [name, weight] : selection_.layers) names.push_back(name);
  if (recipe.scaling == Fp8Scaling::kDelayed) histories_.emplace(recipe, scheme, std::move(names), device);
  for (size_t i = 0; i < selection_.layers.size(); i++) {
    const at::Tensor& weight = selection_.layers[i].second;
    auto layer = std::make_shared<Fp8Layer>(scheme, overflows_);
    for (const Fp8Role role : {Fp8Role::kInput, Fp8Role::kWeight, Fp8Role::kGradient})
      if (histories_) layer->set_delayed(role, histories_->of(i, role));
    layers_.emplace(weight.unsafeGetTensorImpl(),
                    Covered{decltype(Covered::weight)(weight.getIntrusivePtr()), std::move(layer)});
  }
}

void Fp8Layers::keep_casts(bool keeps) {
  for (const auto& [_, covered] : layers_) covered.layer->keep_casts(keeps);
}

void Fp8Layers::start_accumulation_window() {
  for (const auto& [_, covered] : layers_) covered.layer->start_accumulation_window();
}

std::shared_ptr<Fp8Layer> Fp8Layers::find(const at::Tensor& weight) const {
  const auto found = layers_.find(weight.unsafeGetTensorImpl());
  return found == layers_.end() ? nullptr : found->second.layer;
}

void Fp8Layers::give(const at::Tensor& weight, const kernels::Fp8Matrix& cast) {
  if (const auto layer = find(weight)) layer->give(weight, cast);
}

std::shared_ptr<Fp8Layers> Fp8Layers::current() {
  return innermost_layers == nullptr ? nullptr : innermost_layers->layers_;
}

std::shared_ptr<Fp8Layers> Fp8Layers::compressing(c10::DeviceType device) {
  const Scope* scope = innermost_layers;
  while (scope != nullptr && scope->layers_ == nullptr) scope = scope->outer_;
  if (scope == nullptr || !scope->layers_->recipe_.compress_activations) return nullptr;
  return precision::autocast_dtype(device).has_value() ? scope->layers_ : nullptr;
}

std::shared_ptr<Fp8Layer> Fp8Layers::of(const at::Tensor& input, const at::Tensor& weight) {
  for (const Scope* scope = innermost_layers; scope != nullptr; scope = scope->outer_) {
    const auto layer = scope->layers_ == nullptr ? nullptr : scope->layers_->find(weight);
    if (layer == nullptr) continue;
    const bool is_cast = is_plain(input) && is_plain(weight) && input.device() == weight.device() &&
                         precision::autocast_dtype(weight.device().type()).has_value();
    return is_cast ? layer : nullptr;
  }
  return nullptr;
}

Fp8Layers::Scope::Scope(std::shared_ptr<Fp8Layers> layers)
    : layers_(std::move(layers)),
      outer_(innermost_layers),
      was_included_(c10::impl::tls_is_dispatch_key_included(kFp8Route)) {
  innermost_layers = this;
  if (layers_ != nullptr) c10::impl::tls_set_dispatch_key_included(kFp8Route, true);
}

Fp8Layers::Scope::~Scope() {
  innermost_layers = outer_;
  c10::impl::tls_set_dispatch_key_included(kFp8Route, was_included_);
}

}  // namespace accel::nn
