// The outer step of DiLoCo (Douillard et al., 2023): SGD on how far the ranks have come from the weights of their last
// average.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <vector>

#include "config/generated/settings.hpp"
#include "optim/parameter_optimizer.hpp"

namespace accel::parallel {

class OuterSgd {
 public:
  // With outer_lr set. `weights` are where the ranks start.
  OuterSgd(const LocalSgdSettings& settings, const std::vector<at::Tensor>& weights);

  // `weights` are those of this rank, changed in place; `means` those over the ranks.
  void apply(const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& means);
  c10::IValue state_dict() const;
  // Checks everything before it changes anything.
  void load_state_dict(const c10::IValue& state_dict);

 private:
  std::vector<at::Tensor> averaged_;  // weights after the last average; the optimizer's parameters
  optim::ParameterOptimizer optimizer_;
};

}  // namespace accel::parallel
