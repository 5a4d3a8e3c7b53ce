// The ring all_reduce, for any number of ranks: a slice is reduced on its way round the ring and goes round once more
// as the result. Each rank hears one neighbour and speaks to the other, so that no link is asked for more than its
// share. Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009.
#pragma once

#include "comm/ucx/collective.hpp"

namespace accel::comm::ucx {

void all_reduce_by_ring(const Collective& collective, Session& session);

}  // namespace accel::comm::ucx
