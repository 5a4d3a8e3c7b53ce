// The algorithms for ranks that share no memory, of which each sends straight to all others: the fewest rounds, which
// is what counts among a few hosts. For many of them see ring.hpp and rabenseifner.hpp.
#pragma once

#include <cstddef>

#include "comm/ucx/collective.hpp"
#include "comm/ucx/slices.hpp"

namespace accel::comm::ucx {

// Blocks that are only moved. Those up to `small` bytes have arrived before and are left out.
void exchange_blocks(const Collective& collective, size_t small, Session& session);

// Each rank reduces its slice of all inputs, in the order of the ranks.
void reduce_by_messages(const Collective& collective, const Slices& slices, Session& session);

// all_reduce and reduce, by the algorithm that suits the number of ranks.
void reduce_whole_by_messages(const Collective& collective, Session& session);

}  // namespace accel::comm::ucx
