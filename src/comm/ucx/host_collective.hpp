// The algorithms for ranks that have a host segment: blocks pass through it in chunks that stay in the second-level
// cache, and all ranks copy at the same time. For blocks that are too large to travel with the headers.
#pragma once

#include "comm/ucx/collective.hpp"
#include "comm/ucx/slices.hpp"

namespace accel::comm::ucx {

// Blocks that are only moved: broadcast, gather, scatter, all_gather. All ranks see the same largest one.
void move_on_host(const Collective& collective, Session& session);

void reduce_on_host(const Collective& collective, const Slices& slices, Session& session);

}  // namespace accel::comm::ucx
