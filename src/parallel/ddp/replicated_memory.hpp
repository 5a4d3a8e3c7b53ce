// Memory of a model that each rank has as a whole, under data parallelism or alone.
#pragma once

#include "config/generated/settings/prepare/ddp.hpp"
#include "parallel/memory_estimate.hpp"

namespace accel::parallel {

MemoryEstimate estimate_replicated_memory(const nn::Module& module, const DdpSettings& settings,
                                          const MemoryRequest& request);

}  // namespace accel::parallel
