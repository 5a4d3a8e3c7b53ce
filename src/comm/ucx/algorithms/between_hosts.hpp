// SPDX-License-Identifier: Apache-2.0
// Hierarchical collectives for ranks on several hosts: the ranks of a host reduce or share through its segment, and
// each column of ranks (hosts.hpp) exchanges its part between the hosts. A link transfers no more bytes than with one
// rank per host, and all ranks use it. For blocks that are too large to be sent with the preamble.
#pragma once

#include "comm/ucx/algorithms/block_collective.hpp"
#include "comm/ucx/algorithms/session.hpp"

namespace accel::comm::ucx {

// all_reduce and reduce, where there is a `combine`.
void reduce_whole_between_hosts(const Collective& collective, Session& session);
// reduce_scatter and, below, all_gather are for hosts that hold equally many ranks.
void reduce_scatter_between_hosts(const Collective& collective, Session& session);
void all_gather_between_hosts(const Collective& collective, Session& session);
void broadcast_between_hosts(const Collective& collective, Session& session);

}  // namespace accel::comm::ucx
