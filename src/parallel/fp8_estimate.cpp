// SPDX-License-Identifier: Apache-2.0
#include "parallel/fp8_estimate.hpp"

#include <ATen/core/Tensor.h>

#include "config/generated/choices/fp8_scaling.hpp"
#include "kernels/fp8/fp8_values.hpp"
#include "nn/low_precision/fp8_selection.hpp"

namespace accel::parallel {

Fp8Estimate::Fp8Estimate(const nn::Module& module, Precision precision)
    : recipe_(precision::fp8_recipe_without_call(precision)) {
  if (!recipe_) return;
  for (const auto& [name, weight] : nn::select_fp8_layers(module, *recipe_).layers)
    weights_.insert(weight.unsafeGetTensorImpl());
}

int64_t Fp8Estimate::copy_bytes(int64_t elements) const {
  const bool has_both = recipe_->scaling == Fp8Scaling::kRowwise || recipe_->scaling == Fp8Scaling::kBlockwise;
  return has_both ? 2 * elements : elements;
}

int64_t Fp8Estimate::scale_bytes(int64_t rows, int64_t columns) const {
  switch (recipe_->scaling) {
    case Fp8Scaling::kRowwise:
      return rows * static_cast<int64_t>(sizeof(float));
    case Fp8Scaling::kBlockwise:
      return rows * ((columns + kernels::kFp8Block - 1) / kernels::kFp8Block);
    default:
      return 0;
  }
}

}  // namespace accel::parallel
