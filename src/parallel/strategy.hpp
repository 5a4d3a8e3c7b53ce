// SPDX-License-Identifier: Apache-2.0
// Strategies: kinds of parallelism and other changes of a prepared model, which compose. Each is applied to a module
// with its ranks and settings. Some change the module in place, by hooks and placements of its parameters; the last one
// puts a model around it, which exchanges gradients.
#pragma once

#include <c10/core/Device.h>

#include "nn/module.hpp"
#include "parallel/fp8_gather.hpp"
#include "parallel/parallel_model.hpp"

namespace accel::parallel {

struct StrategyInput {
  const nn::ModulePtr& module;
  const ModelRanks& ranks;
  const PrepareModelSettings& settings;
  c10::Device device;       // of parameters that have no memory yet
  const Fp8GatherPtr& fp8;  // may be null
};

// Collective if there are several ranks. Returns the model around the module, or null if the strategy changed the
// module in place, or does not apply.
using Strategy = ParallelModelPtr (*)(const StrategyInput& input);

}  // namespace accel::parallel
