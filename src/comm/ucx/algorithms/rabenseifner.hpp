// SPDX-License-Identifier: Apache-2.0
// Rabenseifner's all-reduce for 2^k ranks: a reduce-scatter by recursive halving and an all-gather by recursive
// doubling, k rounds each. It sends as few bytes as a ring, in fewer rounds. Thakur, Rabenseifner, Gropp: Optimization
// of collective communication operations in MPICH, 2005.
#pragma once

#include "comm/ucx/algorithms/block_collective.hpp"
#include "comm/ucx/algorithms/session.hpp"

namespace accel::comm::ucx {

void all_reduce_by_halving(const Collective& collective, Session& session);

}  // namespace accel::comm::ucx
