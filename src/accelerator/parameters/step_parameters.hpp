// SPDX-License-Identifier: Apache-2.0
// Steps of parameters whose gradients the application computes.
#pragma once

#include <optional>

#include "accelerator/accelerator.hpp"
#include "accelerator/parameters/prepared_parameters.hpp"
#include "config/generated/settings/parameters/parameters_step.hpp"
#include "nn/module.hpp"
#include "optim/optimizer.hpp"

namespace accel::accelerator {

// A micro-batch of gradients, and in the last one of an accumulation window the update. Returns the norm of complete
// gradients if they are clipped or it is wanted.
std::optional<double> step_parameters(Accelerator& accelerator, PreparedParameters& parameters,
                                      const optim::Optimizer& optimizer, const nn::NamedTensors& gradients,
                                      const ParametersStepSettings& settings, bool wants_norm);

}  // namespace accel::accelerator
