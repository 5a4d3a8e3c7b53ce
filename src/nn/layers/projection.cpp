// SPDX-License-Identifier: Apache-2.0
#include "nn/layers/projection.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "nn/deferred_products.hpp"
#include "nn/low_precision/fp8_layers.hpp"

namespace accel::nn {
namespace {

at::Tensor multiply_transposed(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  std::vector<int64_t> sizes = input.sizes().vec();
  sizes.back() = weight.size(1);
  const at::Tensor rows = input.reshape({-1, weight.size(0)});
  return (bias.defined() ? at::addmm(bias, rows, weight) : at::mm(rows, weight)).view(sizes);
}

}  // namespace

at::Tensor Product::operator()(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) const {
  const bool is_in_fp8 = Fp8Layers::of(input, weight) != nullptr;
  const auto products = is_in_fp8 ? nullptr : DeferredProducts::of(weight, bias);
  if (products != nullptr) return products->multiply(input, weight, bias, is_transposed ? 1 : 0);
  return is_transposed ? multiply_transposed(input, weight, bias) : at::linear(input, weight, bias);
}

int64_t Projection::in_features() const {
  const EncodedProduct* const codes = encoded();
  return codes == nullptr ? parameter(kWeight).size(1 - output_dim_) : codes->sizes()[1];
}

int64_t Projection::out_features() const {
  const EncodedProduct* const codes = encoded();
  return codes == nullptr ? parameter(kWeight).size(output_dim_) : codes->sizes()[0];
}

bool Projection::is_split() const { return dynamic_cast<const SplitProduct*>(product_.get()) != nullptr; }

const EncodedProduct* Projection::encoded() const { return dynamic_cast<const EncodedProduct*>(product_.get()); }

at::Tensor Projection::whole_weight() const {
  const EncodedProduct* const codes = encoded();
  if (codes == nullptr) return parameter(kWeight);
  const at::Tensor values = codes->values(at::kFloat);
  return output_dim_ == 0 ? values : values.t();
}

void Projection::set_encoded(std::shared_ptr<const EncodedProduct> encoded) {
  require(product_ == nullptr, Status::kUnsupported, "a ", kind(), " whose weight is ",
          is_split() ? "split over ranks" : "quantized already",
          " cannot be quantized; expected a weight that is whole and has its numbers");
  product_ = std::move(encoded);
}

void Projection::set_split(std::shared_ptr<const SplitProduct> split) {
  require(encoded() == nullptr, Status::kUnsupported, "a ", kind(),
          " with a quantized weight is not split over ranks; expected DDP, full sharding or a model without quantized "
          "layers");
  require(updates_.empty(), Status::kUnsupported, "a ", kind(),
          " with adapters is not split over ranks; expected a model whose merged weights accel_save_model_folder() "
          "saved, or an adapter that is added to another layer");
  product_ = std::move(split);
}

void Projection::remove_updates(const std::function<bool(const ProductUpdate& update)>& chosen) {
  updates_.erase(
      std::remove_if(updates_.begin(), updates_.end(), [&chosen](const auto& update) { return chosen(*update); }),
      updates_.end());
}

at::Tensor Projection::project(const at::Tensor& input) const {
  const at::Tensor& weight = parameter(kWeight);
  const at::Tensor bias = has_bias_ ? parameter(kBias) : at::Tensor();
  const Product product{output_dim_ == 1};
  if (product_ != nullptr && encoded() == nullptr) return product_->multiply(input, weight, bias, product);
  at::Tensor output =
      product_ == nullptr ? product(input, weight, bias) : product_->multiply(input, weight, bias, product);
  for (const auto& update : updates_) {
    const bool decodes = product_ != nullptr && update->needs_weight();
    const at::Tensor used = product_ == nullptr ? weight : decodes ? whole_weight() : at::Tensor();
    output = update->apply(output, input, used, bias, product);
  }
  return output;
}

}  // namespace accel::nn
