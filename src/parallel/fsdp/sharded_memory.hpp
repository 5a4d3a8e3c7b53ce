// SPDX-License-Identifier: Apache-2.0
// Memory of a sharded model.
#pragma once

#include "parallel/memory_estimate.hpp"

namespace accel::parallel {

// Follows the forward and backward of FullyShardedDataParallel. Modules are taken to run in the order in which they
// were added.
MemoryEstimate estimate_sharded_memory(const nn::ModulePtr& module, const EstimateMemorySettings& settings,
                                       const StateBytes& state_bytes);

}  // namespace accel::parallel
