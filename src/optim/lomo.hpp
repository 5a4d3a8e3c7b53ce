// SPDX-License-Identifier: Apache-2.0
// LOMO (Lv et al., 2023): fused backward and update, so that only one gradient exists at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "optim/optimizer.hpp"

namespace accel::optim {

// Whether accel's `optimizer` is one of lomo_rule().
bool is_lomo(const Optimizer& optimizer);

// Averages a gradient over the ranks, in place. Called in the order in which backward completes gradients.
using GradientMean = std::function<void(const at::Tensor& gradient)>;

// Back-propagates from `loss`, and updates each parameter of the optimizers as soon as its gradient is complete. With a
// limit for the norm, a first backward only measures it. `lr` replaces that of the groups. `mean` is
// empty in a job of one process.
void lomo_backward(const std::vector<std::shared_ptr<Optimizer>>& optimizers, const at::Tensor& loss,
                   std::optional<double> lr, const GradientMean& mean = {});

}  // namespace accel::optim
