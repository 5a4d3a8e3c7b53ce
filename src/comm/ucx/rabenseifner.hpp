// Rabenseifner's all_reduce for 2^k ranks: in k rounds each rank reduces half of what it had with another one, then the
// halves come back in k rounds. As few bytes as a ring, in fewer rounds.
// Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, 2005.
#pragma once

#include "comm/ucx/collective.hpp"

namespace accel::comm::ucx {

void all_reduce_by_halving(const Collective& collective, Session& session);

}  // namespace accel::comm::ucx
