// SPDX-License-Identifier: Apache-2.0
// Collectives by messages, for ranks that share no memory: each rank sends directly to all others. That takes the
// fewest rounds, which is best for few hosts; for many see ring.hpp and rabenseifner.hpp.
#pragma once

#include <cstddef>

#include "comm/ucx/algorithms/block_collective.hpp"
#include "comm/ucx/algorithms/session.hpp"
#include "comm/ucx/algorithms/slices.hpp"

namespace accel::comm::ucx {

// Collectives without a reduction. Blocks of up to `small` bytes were sent with the preamble and are skipped.
void exchange_blocks(const Collective& collective, size_t small, Session& session);

// Each rank reduces its slice of all inputs, in the order of the ranks.
void reduce_by_messages(const Collective& collective, const Slices& slices, Session& session);

// all_reduce and reduce, by the algorithm that suits the number of ranks.
void reduce_whole_by_messages(const Collective& collective, Session& session);

}  // namespace accel::comm::ucx
