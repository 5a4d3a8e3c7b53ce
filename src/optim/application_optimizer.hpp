// SPDX-License-Identifier: Apache-2.0
// Application optimizer: an optimizer that the application implements, which the engine prepares, steps and saves.
#pragma once

#include <functional>
#include <memory>

#include "optim/optimizer.hpp"

namespace accel::optim {

struct OptimizerFunctions {
  std::function<bool()> step;  // false if it skipped the update
  std::function<void(bool set_to_none)> zero_grad;
  std::function<c10::IValue()> save;
  std::function<void(const c10::IValue& state)> load;
};

// Its groups hold the parameters, whose gradients are unscaled before a step, and the rates that schedulers of the
// engine set. Everything else is the application's.
std::shared_ptr<Optimizer> application_optimizer(OptimizerFunctions functions);

}  // namespace accel::optim
