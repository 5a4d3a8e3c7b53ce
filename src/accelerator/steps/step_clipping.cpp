// SPDX-License-Identifier: Apache-2.0
#include "accelerator/steps/step_clipping.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>

namespace accel::accelerator {

bool updates(const optim::Optimizer& optimizer, const nn::Module& model) {
  const std::vector<at::Tensor> parameters = model.parameters();
  const std::vector<at::Tensor> updated = optimizer.parameters();
  return std::any_of(updated.begin(), updated.end(), [&parameters](const at::Tensor& one) {
    return std::any_of(parameters.begin(), parameters.end(),
                       [&one](const at::Tensor& parameter) { return parameter.is_same(one); });
  });
}

void StepClipping::clip(const optim::Optimizer& optimizer, const parallel::PlacedParameters& placed) const {
  for (const auto& [entry, max_norm] : models_)
    if (const auto model = entry.lock(); model != nullptr && updates(optimizer, *model->module()))
      placed.clip_gradients_by_norm(model->module()->parameters(), max_norm, /*norm_type=*/2);
}

}  // namespace accel::accelerator
