// The algorithms for ranks that have a host segment: blocks pass through it in chunks that stay in the second-level
// cache, and all ranks copy at the same time. For blocks that are too large to travel with the headers.
#pragma once

#include "comm/ucx/collective.hpp"
#include "comm/ucx/slices.hpp"

namespace accel::comm::ucx {

// Blocks that are only moved. `largest` is that of all ranks.
void move_on_host(const Collective& collective, size_t largest, Session& session);

// Slices of which nobody returns a result take one round, others two.
void reduce_on_host(const Collective& collective, const Slices& slices, Session& session);

// Returns when all have come here.
void meet_on_host(Session& session);

}  // namespace accel::comm::ucx
