// The algorithms for ranks on several hosts: those of a host reduce or share through its segment, and each column of
// ranks (hosts.hpp) moves its part between the hosts. A link carries no byte more often than for one rank a host, and
// all ranks use it. For blocks that are too large to travel with the greetings.
#pragma once

#include "comm/ucx/collective.hpp"

namespace accel::comm::ucx {

// all_reduce and reduce, where there is a `combine`.
void reduce_whole_between_hosts(const Collective& collective, Session& session);
// The same; for hosts that hold equally many ranks, as the one below.
void reduce_scatter_between_hosts(const Collective& collective, Session& session);
void all_gather_between_hosts(const Collective& collective, Session& session);
void broadcast_between_hosts(const Collective& collective, Session& session);

}  // namespace accel::comm::ucx
