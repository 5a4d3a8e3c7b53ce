// SPDX-License-Identifier: Apache-2.0
#include "accelerator/parameters/fp8_all_gather.hpp"

#include <ATen/core/Tensor.h>

#include <memory>
#include <unordered_set>
#include <utility>

#include "config/generated/choices/fp8_format.hpp"
#include "config/generated/choices/fp8_scaling.hpp"
#include "nn/low_precision/fp8_products.hpp"
#include "precision/fp8_recipe.hpp"

namespace accel::accelerator {
namespace {

kernels::Fp8Granularity granularity_of(Fp8Scaling scaling) {
  if (scaling == Fp8Scaling::kRowwise) return kernels::Fp8Granularity::kRow;
  return scaling == Fp8Scaling::kBlockwise ? kernels::Fp8Granularity::kBlock : kernels::Fp8Granularity::kTensor;
}

}  // namespace

parallel::Fp8GatherPtr fp8_all_gather(const std::shared_ptr<nn::Fp8Layers>& layers) {
  if (layers == nullptr || !layers->recipe().fsdp_all_gather) return nullptr;
  const precision::Fp8Recipe& recipe = layers->recipe();
  auto gather = std::make_shared<parallel::Fp8Gather>();
  std::unordered_set<const c10::TensorImpl*> weights;
  for (const auto& [name, weight] : layers->selection().layers)
    if (nn::is_cast_to_fp8(weight.scalar_type())) weights.insert(weight.unsafeGetTensorImpl());
  gather->covers = [weights = std::move(weights)](const at::Tensor& weight) {
    return weights.count(weight.unsafeGetTensorImpl()) != 0;
  };
  gather->format = recipe.format == Fp8Format::kE5m2 ? at::kFloat8_e5m2 : at::kFloat8_e4m3fn;
  gather->granularity = granularity_of(recipe.scaling);
  gather->margin = recipe.margin;
  gather->in_evaluation = recipe.use_in_evaluation;
  gather->overflows = layers->overflow_count();
  gather->given = [layers](const at::Tensor& weight, const kernels::Fp8Matrix& gathered) {
    layers->give(weight, gathered);
  };
  return gather;
}

}  // namespace accel::accelerator
