// SPDX-License-Identifier: Apache-2.0
// Collectives through the host segment: blocks are copied through it in chunks that stay in the L2 cache, by all ranks
// at the same time. For blocks that are too large to be sent with the preamble.
#pragma once

#include "comm/ucx/algorithms/block_collective.hpp"
#include "comm/ucx/algorithms/session.hpp"
#include "comm/ucx/algorithms/slices.hpp"

namespace accel::comm::ucx {

// Collectives without a reduction. `largest` is the largest block of all ranks.
void move_on_host(const Collective& collective, size_t largest, Session& session);

// One round if no rank needs the results of others, otherwise two.
void reduce_on_host(const Collective& collective, const Slices& slices, Session& session);

// Barrier of the ranks of the host.
void host_barrier(Session& session);

}  // namespace accel::comm::ucx
