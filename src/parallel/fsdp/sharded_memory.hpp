// Memory of a sharded model.
#pragma once

#include "config/generated/settings/prepare/fsdp.hpp"
#include "parallel/memory_estimate.hpp"

namespace accel::parallel {

// Follows the forward and backward of FullyShardedDataParallel. Modules are taken to run in the order in which they
// were added.
MemoryEstimate estimate_sharded_memory(const nn::ModulePtr& module, const FsdpSettings& settings,
                                       const MemoryRequest& request);

}  // namespace accel::parallel
