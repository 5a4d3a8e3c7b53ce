// SPDX-License-Identifier: Apache-2.0
// Fp8 estimate: the memory of the weights that a training casts to 8-bit floating point.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <unordered_set>

#include "nn/module.hpp"
#include "precision/fp8_recipe.hpp"

namespace accel::parallel {

// By the recipe of a state whose program does not call accel_set_fp8(); without weights for another precision.
class Fp8Estimate {
 public:
  Fp8Estimate(const nn::Module& module, Precision precision);

  bool covers(const at::Tensor& parameter) const { return weights_.count(parameter.unsafeGetTensorImpl()) != 0; }
  // Whether FSDP gathers the weight in 8 bits.
  bool is_gathered(const at::Tensor& parameter) const { return covers(parameter) && recipe_->fsdp_all_gather; }

  // The copies that layers keep of a whole weight: scales of rows or blocks are both its own and those of the
  // transposed weight.
  int64_t copy_bytes(int64_t elements) const;
  // Scales that ranks gather beside these rows.
  int64_t scale_bytes(int64_t rows, int64_t columns) const;

 private:
  std::optional<precision::Fp8Recipe> recipe_;
  std::unordered_set<const at::TensorImpl*> weights_;
};

}  // namespace accel::parallel
