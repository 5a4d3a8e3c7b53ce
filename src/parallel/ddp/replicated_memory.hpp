// SPDX-License-Identifier: Apache-2.0
// Memory of a model that each rank has as a whole, under data parallelism or alone.
#pragma once

#include "parallel/memory_estimate.hpp"

namespace accel::parallel {

MemoryEstimate estimate_replicated_memory(const nn::Module& module, const EstimateMemorySettings& settings,
                                          const StateBytes& state_bytes);

}  // namespace accel::parallel
