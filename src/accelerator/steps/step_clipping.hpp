// SPDX-License-Identifier: Apache-2.0
// Clipping that belongs to the steps of optimizers instead of to a call of the program: DeepSpeed's gradient_clipping.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "optim/optimizer.hpp"
#include "parallel/parallel_model.hpp"
#include "parallel/placed_parameters.hpp"

namespace accel::accelerator {

// Whether the optimizer has a parameter of the model.
bool updates(const optim::Optimizer& optimizer, const nn::Module& model);

class StepClipping {
 public:
  // `model` is clipped as long as it exists.
  void add(const parallel::ParallelModelPtr& model, double max_norm) { models_.emplace_back(model, max_norm); }
  bool empty() const { return models_.empty(); }
  // Clips the models of this optimizer's parameters, whose gradients are complete and not scaled.
  void clip(const optim::Optimizer& optimizer, const parallel::PlacedParameters& placed) const;

 private:
  std::vector<std::pair<std::weak_ptr<parallel::ParallelModel>, double>> models_;
};

}  // namespace accel::accelerator
