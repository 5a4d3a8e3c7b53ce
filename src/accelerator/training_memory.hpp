// SPDX-License-Identifier: Apache-2.0
// Estimates the memory that training a model takes on each rank, by the settings with which it would be prepared.
#pragma once

#include "config/generated/settings/prepare/estimate_memory.hpp"
#include "nn/module.hpp"
#include "optim/optimizer.hpp"
#include "parallel/memory_estimate.hpp"

namespace accel::accelerator {

// Estimates for a model before it is prepared, or for a prepared one; with or without memory. Null for no optimizer.
parallel::MemoryEstimate estimate_memory(const nn::ModulePtr& module, const optim::Optimizer* optimizer,
                                         const EstimateMemorySettings& settings);

}  // namespace accel::accelerator
