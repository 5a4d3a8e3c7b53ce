// SPDX-License-Identifier: Apache-2.0
// Outer optimizer of DiLoCo (Douillard et al., 2023): SGD with momentum on the difference between the latest averaged
// parameters and the new average.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <vector>

#include "config/generated/settings/training_loop/local_sgd.hpp"
#include "optim/parameter_optimizer.hpp"

namespace accel::parallel {

class OuterSgd {
 public:
  // Requires outer_lr. `weights` are the initial parameters.
  OuterSgd(const LocalSgdSettings& settings, const std::vector<at::Tensor>& weights);

  // `weights` are those of this rank, changed in place; `means` those over the ranks.
  void apply(const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& means);
  c10::IValue state_dict() const;
  // Checks everything before it changes anything.
  void load_state_dict(const c10::IValue& state_dict);

 private:
  std::vector<at::Tensor> averaged_;  // parameters after the latest average; the parameters of the optimizer
  optim::ParameterOptimizer optimizer_;
};

}  // namespace accel::parallel
