// SPDX-License-Identifier: Apache-2.0
// Ring all-reduce, for any number of ranks: a reduce-scatter and an all-gather around the ring. Each rank receives from
// one neighbour and sends to the other, so that all links are used equally. Patarasuk, Yuan: Bandwidth optimal
// all-reduce algorithms for clusters of workstations, 2009.
#pragma once

#include "comm/ucx/algorithms/block_collective.hpp"
#include "comm/ucx/algorithms/session.hpp"

namespace accel::comm::ucx {

void all_reduce_by_ring(const Collective& collective, Session& session);

}  // namespace accel::comm::ucx
