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

void Projection::set_split(std::shared_ptr<const SplitProduct> split) {
  require(updates_.empty(), Status::kUnsupported, "a ", kind(),
          " with adapters is not split over ranks; expected a model whose merged weights accel_save_model_folder() "
          "saved, or an adapter that is added to another layer");
  split_ = std::move(split);
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
  if (split_ != nullptr) return split_->multiply(input, weight, bias, product);
  at::Tensor output = product(input, weight, bias);
  for (const auto& update : updates_) output = update->apply(output, input, weight, bias, product);
  return output;
}

}  // namespace accel::nn
